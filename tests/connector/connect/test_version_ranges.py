"""Versions and ranges as Maven reads them. The same texts go to the JVM in `connect_rest_tools`."""

from __future__ import annotations

import pytest
from keyorder.connector.connect.config.version_ranges import compare, fits

ORDER = [
    "4.1.2-alpha",
    "4.1.2-beta",
    "4.1.2-m1",
    "4.1.2-rc1",
    "4.1.2-SNAPSHOT",
    "4.1.2",
    "4.1.2-sp",
    "4.1.2-x",
    "4.1.2-1",
    "4.1.3",
    "5",
]


def test_order() -> None:
    """Each stands before all that follow."""
    for number, one in enumerate(ORDER):
        assert compare(one, one) == 0
        assert all(compare(one, other) < 0 < compare(other, one) for other in ORDER[number + 1 :]), one


@pytest.mark.parametrize("same", ["4.1.2.0", "4.01.02", "4.1.2-ga", "4.1.2.FINAL", "4.1.2-0", " 4.1.2 "])
def test_the_same_version(same: str) -> None:
    assert compare("4.1.2", same) == 0
    assert fits(same, "4.1.2")


@pytest.mark.parametrize(
    "text",
    ["[4.1.2]", "[4.1,)", "(,4.1.2]", "(4.1.2-SNAPSHOT,5)", "[1,2],[4,5]", "[4,),[5,6]", "(,)", "4.1.2,5", " [4 , 5] "],
)  # fmt: skip
def test_in_a_range(text: str) -> None:
    assert fits(text, "4.1.2")


@pytest.mark.parametrize("text", ["", "x", "4.1", "[]", "(,4.1.2)", "(4.1.2,)", "[5,)", "[1,2],[5,6]", "4..1.2"])
def test_outside(text: str) -> None:
    assert not fits(text, "4.1.2")


@pytest.mark.parametrize(
    "text",
    ["[", "[4.1.2", "4.1.2]", "(4)", "(4]", "[5,4]", "(4,4)", "[1,3],[2,5]", "[1,2],(,9]", "[4,5]x", "[4,5],4.1.2"],
)
def test_no_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"range|one version"):
        fits(text, "4.1.2")
