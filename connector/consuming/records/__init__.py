"""Records between fetching and giving out: batches, intake, strays, what a call has collected."""
