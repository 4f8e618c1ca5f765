"""A running task: in front of it or behind it the client, around it errors and parked keys."""
