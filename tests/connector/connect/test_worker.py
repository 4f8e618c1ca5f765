"""What a worker tells of tasks that have ended."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any

from keyorder.connector.connect.runtime.tasks.task_base import TaskId
from keyorder.connector.connect.runtime.worker import Worker


def test_what_a_task_used_is_told_after_it_has_ended() -> None:
    """Its last record may have come between two questions; nobody reads it again, since its offset is committed."""
    nothing: Any = None
    worker = Worker({}, {}, nothing, nothing, nothing, None, "", lambda *_: None)
    over: Any = SimpleNamespace(
        spec=SimpleNamespace(id=TaskId("sink", 0, 1)),
        stopping=Event(),
        is_alive=lambda: False,
        ident=1,
        displaced=False,
        topics={"t"},
    )
    worker._tasks["sink", 0] = over
    state: Any = SimpleNamespace(wanted=dict, assignment=SimpleNamespace(slots={}, epoch=1))
    worker.follow(state, "member")
    assert worker.topics() == {"sink": {"t"}}
    assert worker.topics() == {}
