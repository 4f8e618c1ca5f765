"""Version compaction (KIP-280) on a stock cluster."""
