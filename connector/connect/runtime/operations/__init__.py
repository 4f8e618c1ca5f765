"""What can be asked of a worker from outside."""
