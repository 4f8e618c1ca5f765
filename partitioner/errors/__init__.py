"""One error tree. The class says whose fault it is; `retriable` says whether the same call may succeed later.

`UsageError`: the call or a setting is wrong, and the text says which and how to fix it.
`PeerError`: the call was right, Kafka or another process was not.
`OrderError`: order or durability cannot be proven, so keyorder stopped before it guessed.
"""

from __future__ import annotations

from .order import (
    ConsentNeededError,
    CorruptRecordError,
    GroupNotEmptyError,
    GroupResetError,
    IdentityMismatchError,
    MisplacedKeysError,
    NotConfirmedError,
    NotReleasableError,
    OrphanedTopicError,
    RecordVersionError,
    StockWritersError,
    StrayError,
    TimelineRegressionError,
    TruncationError,
)
from .peer import (
    BrokerUnreachableError,
    ChangeLateError,
    ControllerFencedError,
    HostUnknownError,
    IneligibleWriterError,
    KafkaOperationError,
    KeyBlockedError,
    NotAuthorizedError,
    StaleViewError,
    TlsError,
    WriterLateError,
)
from .roots import Cause, KeyorderError, OrderError, PeerError, StockError, UsageError
from .usage import (
    AssignmentError,
    ConfigError,
    CountError,
    GroupNotFoundError,
    KeyTypeError,
    LayoutError,
    NoOffsetError,
    PartitionRefusedError,
    ReleasedTopicError,
    TimelineTooLargeError,
    TopicNotFoundError,
    UnmanagedTopicError,
)

__all__ = [
    "AssignmentError",
    "BrokerUnreachableError",
    "Cause",
    "ChangeLateError",
    "ConfigError",
    "ConsentNeededError",
    "ControllerFencedError",
    "CorruptRecordError",
    "CountError",
    "GroupNotEmptyError",
    "GroupNotFoundError",
    "GroupResetError",
    "HostUnknownError",
    "IdentityMismatchError",
    "IneligibleWriterError",
    "KafkaOperationError",
    "KeyBlockedError",
    "KeyTypeError",
    "KeyorderError",
    "LayoutError",
    "MisplacedKeysError",
    "NoOffsetError",
    "NotAuthorizedError",
    "NotConfirmedError",
    "NotReleasableError",
    "OrderError",
    "OrphanedTopicError",
    "PartitionRefusedError",
    "PeerError",
    "RecordVersionError",
    "ReleasedTopicError",
    "StaleViewError",
    "StockError",
    "StockWritersError",
    "StrayError",
    "TimelineRegressionError",
    "TimelineTooLargeError",
    "TlsError",
    "TopicNotFoundError",
    "TruncationError",
    "UnmanagedTopicError",
    "UsageError",
    "WriterLateError",
]
