"""The producer: its face, its writer session, move tombstones."""
