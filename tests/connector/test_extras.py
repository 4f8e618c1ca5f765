"""An optional dependency that is missing is named with the extra that brings it."""

from __future__ import annotations

import importlib

import pytest
from keyorder.connector.extras import needs_extra


def test_the_extra_is_named() -> None:
    """Beside the module; whoever catches the error finds its name."""
    with (
        pytest.raises(
            ModuleNotFoundError, match=r"no_such_module is not installed: pip install 'keyorder\[arrow\]'"
        ) as told,
        needs_extra("arrow"),
    ):
        importlib.import_module("no_such_module")
    assert told.value.name == "no_such_module"
