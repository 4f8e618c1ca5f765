"""Who acts, for logs and records that people read."""

from __future__ import annotations

import getpass
import os
import socket


def acting_user() -> str:
    """`user@host` of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
