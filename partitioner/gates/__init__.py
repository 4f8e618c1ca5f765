"""The readers' side: which gates are open, where a group starts, what a commit proves."""
