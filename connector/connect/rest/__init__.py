"""The REST of a worker."""
