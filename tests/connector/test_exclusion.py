"""What a signal handler puts off is done, whatever another signal breaks off."""

from __future__ import annotations

import itertools
import sys
from types import FrameType

from keyorder.connector.producing import exclusion as module
from keyorder.connector.producing.exclusion import Exclusion


class Raised(BaseException):
    """What a signal handler raises."""


def test_an_exception_at_any_step_loses_nothing_that_was_put_off() -> None:
    """At the entry of what was put off as well; in its order."""
    for step in itertools.count():
        exclusion, done = Exclusion(), dict.fromkeys("", 0)

        def late(name: str, done: dict[str, int] = done) -> None:
            done[name] = done.get(name, 0) + 1

        left, raised = step, False

        def seen(frame: FrameType, event: str, _: object) -> None:
            nonlocal left, raised
            if frame.f_code.co_filename in (module.__file__, __file__) and event in ("call", "c_return") and not raised:
                left -= 1
                if left < 0:
                    raised = True
                    raise Raised

        with exclusion.lock:  # where a handler finds the thread that it interrupts
            for name in "ab":
                exclusion.run(lambda name=name: late(name))
            assert not done
        sys.setprofile(seen)
        try:
            exclusion.settle()
        except Raised:
            pass
        finally:
            sys.setprofile(None)
        exclusion.settle()
        assert list(done) == ["a", "b"], step
        assert not exclusion.interrupted
        if not raised:
            assert list(done.values()) == [1, 1]
            break
    assert step > 4
