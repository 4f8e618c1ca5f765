"""The writers' side: leases, the in-sync writer set, holds and READY."""
