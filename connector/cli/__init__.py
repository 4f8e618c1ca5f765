"""The `keyorder` command."""
