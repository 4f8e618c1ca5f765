"""Records as Arrow columns, straight from and to the client library's C calls. Needs the extra `keyorder[arrow]`."""
