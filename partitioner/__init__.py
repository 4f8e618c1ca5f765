"""The pure core: hashing, layouts, timelines, gates and state machines. No clock, no I/O, no threads."""
