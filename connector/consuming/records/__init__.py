"""Records between fetching and giving out: parcels, intake, strays, what a call has collected."""
