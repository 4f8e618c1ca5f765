"""Facts of the machine that figures depend on. No host name, no user, no path."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil
from keyorder._version import __version__


def facts(kafka_version: str | None) -> dict[str, Any]:
    """Cores, memory, versions."""
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_name(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": platform.system(),
        "python": platform.python_version(),
        "keyorder": __version__,
        "confluent_kafka": confluent_kafka.__version__,
        "librdkafka": confluent_kafka.libversion()[0],
        "kafka": kafka_version,
        **{name: _installed(name) for name in ("pyarrow", "numba", "pyspark", "duckdb")},
    }


def _cpu_name() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
