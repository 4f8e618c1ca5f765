"""`keyorder.results`: what the clients' calls give, and what some of them take, beside the names of `keyorder` itself."""

from .connector.figures import ConsumerFigures, ProducerFigures
from .connector.groups.group_admin import ClosedGate, GroupStatus, GroupSummary
from .connector.groups.resetting import Point, Reset, Target
from .connector.operations.aborting import Abort
from .connector.operations.change_status import ChangeStatus
from .connector.operations.description import GroupDescription, WriterDescription
from .connector.operations.forecast import ChangeForecast, ForcedDrain
from .connector.operations.notices import Notice
from .connector.operations.outcomes import DeletePartitions, DeletePartitionsResult
from .connector.operations.releasing import Release
from .connector.operations.stray_scan import PartitionStrays
from .connector.topology.draining import DrainStep
from .connector.topology.rehoming import RehomingPlan, RehomingTerms
from .connector.topology.results import ChangeStep, WaitedFor
from .partitioner.adoption import KeySample
from .partitioner.changes.plan import KeyMove
from .partitioner.epochs import Drain, Epoch, OpenChange
from .partitioner.modes import Mode
from .partitioner.records.control_records import Waiver
from .partitioner.timeline import Timeline

__all__ = [
    "Abort",
    "ChangeForecast",
    "ChangeStatus",
    "ChangeStep",
    "ClosedGate",
    "ConsumerFigures",
    "DeletePartitions",
    "DeletePartitionsResult",
    "Drain",
    "DrainStep",
    "Epoch",
    "ForcedDrain",
    "GroupDescription",
    "GroupStatus",
    "GroupSummary",
    "KeyMove",
    "KeySample",
    "Mode",
    "Notice",
    "OpenChange",
    "PartitionStrays",
    "Point",
    "ProducerFigures",
    "RehomingPlan",
    "RehomingTerms",
    "Release",
    "Reset",
    "Target",
    "Timeline",
    "WaitedFor",
    "Waiver",
    "WriterDescription",
]
