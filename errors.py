"""`keyorder.errors`: every error that keyorder raises, in one tree.

`UsageError`: the call or a setting is wrong. `PeerError`: Kafka or another process failed. `OrderError`: order or
durability cannot be proven, so keyorder stopped. `retriable` says whether the same call may succeed later.
"""

from .partitioner import errors as _errors
from .partitioner.errors import *  # noqa: F403

__all__ = list(_errors.__all__)
