"""The built-in connectors: each is an example to copy."""
