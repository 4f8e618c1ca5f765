"""Whoever tries again keeps nothing of what it called."""

from __future__ import annotations

import gc
import weakref

import pytest
from keyorder.connector.attempts import Attempts
from tenacity import retry_if_result, stop_after_attempt


class Client:
    """Something that must go when nobody uses it any more. failures: how often its first answers are no."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def answer(self) -> bool:
        self.failures -= 1
        return self.failures < 0

    def looked(self) -> None:
        """Between two attempts."""


@pytest.mark.parametrize("failures", [0, 1])
def test_what_was_called_goes_at_once(failures: int) -> None:
    """Whether it was called once or again; no garbage collector has to run."""
    client = Client(failures)
    freed = weakref.ref(client)
    gc.collect()
    gc.disable()
    try:
        assert Attempts(
            stop=stop_after_attempt(2),
            retry=retry_if_result(lambda answer: not answer),
            before_sleep=lambda _, client=client: client.looked(),
        )(client.answer)
        del client
        assert freed() is None
    finally:
        gc.enable()
