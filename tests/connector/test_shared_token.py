"""One token for all clients that one of ours is made of, and the next one in time."""

from __future__ import annotations

from typing import Any

import pytest
from keyorder.connector import clock
from keyorder.connector.shared_token import SharedToken


def in_an_hour() -> float:
    return clock.wall_ms() / 1000 + 3600


class Application:
    """Gives one answer after the other; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked_with = list(answers), list[str]()

    def __call__(self, config: str) -> Any:
        self.asked_with.append(config)
        answer = self.answers[len(self.asked_with) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_all_clients_get_the_same_token() -> None:
    """With what else the application has said."""
    answer = ("token", in_an_hour(), "principal", {"extension": "value"})
    application = Application(answer)
    token = SharedToken(application)
    assert [token("config") for _ in range(3)] == [answer] * 3
    assert application.asked_with == ["config"]


def test_a_token_near_its_end_is_given_to_nobody_else() -> None:
    application = Application(("first", clock.wall_ms() / 1000 - 1), ("second", in_an_hour()))
    token = SharedToken(application)
    assert [token("config")[0] for _ in range(3)] == ["first", "second", "second"]


def test_after_a_failure_the_application_is_asked_again() -> None:
    application = Application(("first", 0), ValueError("gone"), ("second", in_an_hour()))
    token = SharedToken(application)
    assert token("config")[0] == "first"
    with pytest.raises(ValueError, match="gone"):
        token("config")
    assert [token("config")[0] for _ in range(2)] == ["second", "second"]


@pytest.mark.parametrize("answer", [None, "token", (), ("token",), ("token", "tomorrow")], ids=str)
def test_what_is_no_token_is_kept_for_nobody(answer: Any) -> None:
    """The client library says what is wrong with it."""
    application = Application(answer, answer)
    token = SharedToken(application)
    assert [token("config"), token("config")] == [answer, answer]
    assert len(application.asked_with) == 2


def test_another_config_is_another_token() -> None:
    application = Application(("first", in_an_hour()), ("second", in_an_hour()))
    token = SharedToken(application)
    assert [token("a")[0], token("b")[0], token("b")[0]] == ["first", "second", "second"]
