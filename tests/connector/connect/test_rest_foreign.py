"""Bodies of anybody: the REST refuses them in its own words, and goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.connect_rig import RestClient

ROUTES = [
    ("POST", "/connectors"),
    ("PUT", "/connectors/none/config"),
    ("PATCH", "/connectors/none/config"),
    ("PUT", "/connector-plugins/FileStreamSink/config/validate"),
    ("PATCH", "/connectors/none/offsets"),
    ("POST", "/connectors/none/parked/release"),
    ("PUT", "/admin/loggers/none.of.ours"),
]
FIELDS = [
    "name",
    "config",
    "initial_state",
    "initial_offsets",
    "offsets",
    "topic",
    "key",
    "encoding",
    "mode",
    "level",
    "tasks.max",
]
PLAIN: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=4), st.just("base64")
)
DOCUMENTS = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
BODIES = st.one_of(DOCUMENTS.map(lambda document: json.dumps(document).encode()), st.binary(min_size=1, max_size=20))


@pytest.mark.parametrize(("method", "path"), ROUTES)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES)
@example(body=b"[" * 100_000)
@example(body=b'{"name":' * 20_000)
@example(body=b'{"name":"\\ud800","config":{"connector.class":"FileStreamSink"}}')
@example(body=b'{"topic":"t","key":"\\ud800"}')
@example(body=b'{"name":"x","config":{"tasks.max":Infinity}}')
@example(body=b"\xff\xfe")
@example(body=b"9" * 5_000)
def test_a_body_is_refused_in_words(group: tuple[RestClient, RestClient], method: str, path: str, body: bytes) -> None:
    """No answer says that the worker has failed, and the one after it finds it well."""
    answer = group[0].http.request(method, path, content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code < 500, answer.text
    assert isinstance(answer.json(), dict)
    assert answer.status_code == answer.json().get("error_code", 200)
    assert group[0]("GET", "/connectors").status_code == 200
