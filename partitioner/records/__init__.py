"""Control records: as values, and as bytes by version."""
