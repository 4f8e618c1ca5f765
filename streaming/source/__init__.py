"""The source: options, offsets and plans of a query, and what a task reads."""
