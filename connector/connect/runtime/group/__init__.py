"""What the workers of a group agree on, and the one that leads."""
