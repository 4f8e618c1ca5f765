"""keyorder: every key in order while a Kafka topic's partition count grows and shrinks.

The public names are resolved on first use, so that `import keyorder` loads no Kafka client. It loads nothing at all: the
command passes here before it can answer Ctrl-C.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for True; `typing` itself takes a hundredth of a second to load
if TYPE_CHECKING:
    from ._version import __version__
    from .connector.admin import TopicAdmin
    from .connector.consuming.consumer import OrderedConsumer
    from .connector.consuming.gates.gate_status import Gate
    from .connector.consuming.listener import KeyRebalanceListener
    from .connector.groups.group_admin import GroupAdmin
    from .connector.operations.description import TopicDescription
    from .connector.producing.producer import OrderedProducer
    from .connector.topology.results import Change
    from .partitioner.changes.plan import ChangePlan
    from .partitioner.errors import *  # noqa: F403
    from .partitioner.errors import KeyorderError
    from .partitioner.layout import Layout

__all__ = [
    "Change",
    "ChangePlan",
    "Gate",
    "GroupAdmin",
    "KeyRebalanceListener",
    "KeyorderError",
    "Layout",
    "OrderedConsumer",
    "OrderedProducer",
    "TopicAdmin",
    "TopicDescription",
    "__version__",
]

_HOME_OF = {
    "Change": ".connector.topology.results",
    "ChangePlan": ".partitioner.changes.plan",
    "Gate": ".connector.consuming.gates.gate_status",
    "GroupAdmin": ".connector.groups.group_admin",
    "KeyRebalanceListener": ".connector.consuming.listener",
    "KeyorderError": ".partitioner.errors",
    "Layout": ".partitioner.layout",
    "OrderedConsumer": ".connector.consuming.consumer",
    "OrderedProducer": ".connector.producing.producer",
    "TopicAdmin": ".connector.admin",
    "TopicDescription": ".connector.operations.description",
    "__version__": "._version",
}
_MODULES = ("aio", "errors", "results")  # public ones, which `import keyorder` alone makes known too


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f".{name}", "keyorder")
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name], "keyorder"), name)
    if name.endswith("Error"):  # each error is found beside the client that raises it, as KafkaException is
        errors = import_module(".errors", "keyorder")
        if name in errors.__all__:
            return getattr(errors, name)
    raise AttributeError(f"module 'keyorder' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
