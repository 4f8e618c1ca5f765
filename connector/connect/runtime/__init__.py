"""The worker: runs tasks, alone or with others, and keeps order while it does."""
