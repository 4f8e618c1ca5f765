"""The control topics: reading them to an end, writing timelines."""
