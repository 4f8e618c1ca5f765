"""The consumer: membership, gates, positions, commits."""
