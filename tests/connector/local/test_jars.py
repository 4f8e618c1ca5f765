"""The jar cache against a real HTTP server: nothing is used that is not the jar that was locked."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from keyorder.connector.local.errors import ChecksumError, DownloadError, MissingExtraError
from keyorder.connector.local.jars import ensure_jars, jar_paths
from keyorder.connector.local.processes import free_ports
from keyorder.connector.local.repository import cache_dir, kafka_dir, repository_url, state_dir
from keyorder.connector.local.versions import KafkaLock, LockedJar

CONTENTS = {f"g/a{i}/1/a{i}-1.jar": bytes([i]) * (1000 + i) for i in range(6)}


class Repository(ThreadingHTTPServer):
    """A Maven repository of a few small jars that counts requests and fails on demand."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.contents = dict(CONTENTS)
        self.faults: dict[str, list[int]] = {}
        self.asked: Counter[str] = Counter()
        self.guard = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        path = self.path.lstrip("/")
        with self.server.guard:
            self.server.asked[path] += 1
            faults = self.server.faults.get(path)
            status = faults.pop(0) if faults else 200 if path in self.server.contents else 404
        content = self.server.contents[path] if status == 200 else b"no"
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Repository]:
    """A running repository, named by the environment, and an empty cache."""
    server = Repository()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    monkeypatch.setenv("KEYORDER_MAVEN_URL", server.url + "/")
    monkeypatch.setenv("KEYORDER_CACHE_DIR", str(tmp_path / "cache"))
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def lock() -> KafkaLock:
    """A lock of the jars that the repository has."""
    jars = [LockedJar(path, hashlib.sha256(content).hexdigest(), len(content)) for path, content in CONTENTS.items()]
    return KafkaLock("9.9.9", tuple(jars))


def partial_files(lock: KafkaLock) -> list[Path]:
    return list(kafka_dir(lock.version).rglob("*.part"))


def test_jars_are_fetched_once_and_reported(repository: Repository, lock: KafkaLock) -> None:
    """The first call fetches all in class path order, the second nothing; progress ends at the whole size."""
    seen: list[tuple[int, int]] = []
    paths = ensure_jars(lock, progress=lambda there, needed: seen.append((there, needed)))
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())
    assert paths == jar_paths(lock)
    assert seen[0] == (0, lock.size)
    assert seen[-1] == (lock.size, lock.size)
    ensure_jars(lock)
    assert set(repository.asked.values()) == {1}
    assert partial_files(lock) == []


@pytest.mark.parametrize("damage", [b"", b"x", b"\xff" * 1000])
def test_a_damaged_jar_is_fetched_again(repository: Repository, lock: KafkaLock, damage: bytes) -> None:
    """A cached jar that is cut, or changed at the same size, is replaced before use; others are left alone."""
    paths = ensure_jars(lock)
    paths[0].write_bytes(damage)
    ensure_jars(lock)
    assert paths[0].read_bytes() == CONTENTS[lock.jars[0].path]
    assert repository.asked[lock.jars[0].path] == 2
    assert repository.asked[lock.jars[1].path] == 1


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [b"\x07" * 1000, b"longer than locked" * 9999])
def test_a_jar_that_is_not_the_locked_one_is_refused(repository: Repository, lock: KafkaLock, wrong: bytes) -> None:
    """What a repository gives under the right name is not kept unless its checksum is the locked one."""
    repository.contents[lock.jars[0].path] = wrong
    with pytest.raises(ChecksumError, match=r"a0-1\.jar.*is locked"):
        ensure_jars(lock)
    assert not jar_paths(lock)[0].exists()
    assert partial_files(lock) == []


def test_a_failure_that_passes_is_retried_and_one_that_stays_is_not(repository: Repository, lock: KafkaLock) -> None:
    """503 is asked again and succeeds; 404 ends at once, as a retriable error that names the jar."""
    flaky, missing = lock.jars[0].path, lock.jars[1].path
    repository.faults[flaky] = [503, 429]
    del repository.contents[missing]
    with pytest.raises(DownloadError, match=r"a1-1\.jar.*404") as caught:
        ensure_jars(lock)
    assert caught.value.retriable
    assert repository.asked[missing] == 1
    repository.contents[missing] = CONTENTS[missing]
    # The same call again takes up where it broke off.
    before = Counter(repository.asked)
    good = [jar.path for jar, path in zip(lock.jars, jar_paths(lock), strict=True) if path.exists()]
    ensure_jars(lock)
    assert [path.read_bytes() for path in jar_paths(lock)] == list(CONTENTS.values())
    assert all(repository.asked[path] == before[path] for path in good)


@pytest.mark.slow
def test_two_processes_may_fetch_at_once(repository: Repository, lock: KafkaLock) -> None:
    """Two processes that fill one cache at the same time both end with the whole class path."""
    program = textwrap.dedent(
        """
        import json, sys
        from keyorder.connector.local.jars import ensure_jars
        from keyorder.connector.local.versions import parse_lock
        lock = parse_lock(json.loads(sys.argv[1]))
        sys.stdin.readline()
        ensure_jars(lock)
        ensure_jars(lock)
        """
    )
    jars = [{"path": jar.path, "sha256": jar.sha256, "size": jar.size} for jar in lock.jars]
    document = json.dumps({"kafka": lock.version, "jars": jars})
    both = [subprocess.Popen([sys.executable, "-c", program, document], stdin=subprocess.PIPE) for _ in range(2)]
    for process in both:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in both:
        process.communicate(timeout=120)
    assert [process.returncode for process in both] == [0, 0]
    assert [path.read_bytes() for path in jar_paths(lock)] == list(CONTENTS.values())
    assert partial_files(lock) == []


@pytest.mark.slow
def test_no_server_at_all_is_a_download_error(
    repository: Repository, lock: KafkaLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that is not there is reported as the peer's fault, retriable."""
    monkeypatch.setenv("KEYORDER_MAVEN_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(DownloadError, match="cannot fetch") as caught:
        ensure_jars(lock)
    assert caught.value.retriable


def test_without_jgo_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The repository's name comes from an optional package; without it the text says what to install."""
    monkeypatch.delenv("KEYORDER_MAVEN_URL", raising=False)
    monkeypatch.setitem(sys.modules, "jgo.constants", None)
    with pytest.raises(MissingExtraError, match=r"keyorder\[local\]"):
        repository_url()


def test_the_users_folders_follow_the_xdg_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Cache and state folders are those of the XDG specification; our own variable wins for the cache."""
    monkeypatch.delenv("KEYORDER_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    assert cache_dir() == tmp_path / "c" / "keyorder"
    assert state_dir() == tmp_path / ".local" / "state" / "keyorder"
    monkeypatch.setenv("KEYORDER_CACHE_DIR", str(tmp_path / "own"))
    assert kafka_dir("4.1.2") == tmp_path / "own" / "kafka-4.1.2"
