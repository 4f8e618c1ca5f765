"""The application's code as a consumer calls it, and what that raises.

Callbacks run inside the client library's poll. What one raises is kept, and raised when the poll has returned: the library
would throw the fetched records away otherwise.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from confluent_kafka import TopicPartition

from .listener import KeyRebalanceListener

_MOST_ERRORS = 100
RebalanceCallback = Callable[[Any, list[TopicPartition]], None]


class Callbacks:
    """Whom one consumer tells of what, and what they have raised. Used by one thread at a time.

    listener: hears of keys that come and go, None without one. telling: a rebalance callback is running.
    """

    def __init__(self) -> None:
        self.listener: KeyRebalanceListener | None = None
        self.telling = False
        self._of_rebalances: dict[str, RebalanceCallback | None] = {}
        self._application: Callable[[], Any] = lambda: None
        self._errors: list[BaseException] = []
        self._of_event: Exception | None = None
        self._event_heard = False

    def follow(
        self,
        application: Any,
        listener: KeyRebalanceListener | None,
        on_assign: RebalanceCallback | None,
        on_revoke: RebalanceCallback | None,
        on_lost: RebalanceCallback | None,
    ) -> None:
        """Tell these of rebalances from now on. application: what a callback gets as its consumer; it is not kept alive."""
        self._application, self.listener = weakref.ref(application), listener
        self._of_rebalances = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}

    def forget(self) -> None:
        """Tell nobody of rebalances any more."""
        self._of_rebalances, self.listener = {}, None

    def tell(self, what: str, partitions: list[TopicPartition], heard: str = "") -> None:
        """Call the application. heard: the listener's method, if it is another one."""
        callback = self._of_rebalances.get(what)
        self.telling = True
        try:
            if callback is not None:
                callback(self._application(), partitions)
            if self.listener is not None:
                getattr(self.listener, heard or what)(partitions)
        except BaseException as error:
            self._errors.append(error)
        finally:
            self.telling = False

    def tell_lost(self, partitions: list[TopicPartition]) -> None:
        """As the client library does: on_revoke hears of it where there is no on_lost."""
        there = self._of_rebalances.get("on_lost") is not None
        self.tell("on_lost" if there else "on_revoke", partitions, "on_lost")

    def guarded(self, call: Callable[[], object]) -> bool:
        """Run the application's code; what it raises is raised after the client library's poll. Whether it succeeded."""
        try:
            call()
        except BaseException as error:
            self._errors.append(error)
            return False
        return True

    def told_event(self, call: Callable[[], object]) -> None:
        """As `guarded`, of error_cb and its kin: of several that raise before a call ends, the last one's is raised.

        So it is in the client library, where a broker out of reach is an event for each of its addresses: to raise each would
        let as many calls fail one after the other, close() among them.
        """
        try:
            call()
        except Exception as error:
            self._errors[:] = [*(known for known in self._errors if known is not self._of_event), error]
            self._of_event = error
        except BaseException as stop:
            self._errors.append(stop)

    def raises(self, error: BaseException) -> None:
        """The next `raise_pending` raises this too."""
        self._errors.append(error)

    def raise_pending(self, closing: bool = False) -> None:
        """Raise what a callback could not. closing: without what error_cb raises again: its program has heard."""
        if closing and self._event_heard:
            self._errors[:] = [error for error in self._errors if error is not self._of_event]
        if self._errors:
            # A stop that was asked for goes first. More than so many, and a callback raises faster than it is polled.
            del self._errors[_MOST_ERRORS:]
            stops = (n for n, error in enumerate(self._errors) if not isinstance(error, Exception))
            error = self._errors.pop(next(stops, 0))
            if error is self._of_event:
                self._of_event, self._event_heard = None, True
            raise error
