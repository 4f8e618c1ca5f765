"""Checks of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka

from ..local.errors import JavaNotFoundError
from ..local.java import MINIMUM_JAVA, find_java
from .findings import Finding, Status


def check_machine() -> Iterator[Finding]:
    """The client library, and a Java runtime for `keyorder local` and `keyorder demo`; clients need none."""
    library = f"confluent-kafka {confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"
    yield Finding("client library", "this machine", Status.OK, library)
    try:
        java = find_java()
    except JavaNotFoundError:
        yield Finding(
            "Java", "this machine", Status.WARN,
            f"no Java {MINIMUM_JAVA} or later: `keyorder local` and `keyorder demo` cannot start brokers; clients need none",
            f"install a Java {MINIMUM_JAVA} runtime, set JAVA_HOME to one, or: pip install 'keyorder[jre]'",
        )  # fmt: skip
    else:
        yield Finding("Java", "this machine", Status.OK, f"{java.version} at {java.executable} (from {java.source})")
