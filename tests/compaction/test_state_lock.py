"""One compactor or view has a state file: a second one is told so, and nothing outlives the process that had it."""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from keyorder import TopicAdmin
from keyorder.compaction import state_lock
from keyorder.compaction.compactor import TopicCompactor
from keyorder.compaction.errors import StateInUseError
from keyorder.compaction.store import VersionStore
from keyorder.compaction.table import VersionTable
from keyorder.compaction.view import CompactedView
from keyorder.partitioner.errors import ConfigError, TopicNotFoundError
from support.cleaning import HEADER, dump, facts_of
from support.cleaning import send_versions as send
from support.cluster import KafkaUnderTest

HOLD = """
import sys, time
from pathlib import Path
from keyorder.compaction.store import VersionStore
store = VersionStore(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def until(seen: Callable[[], bool]) -> None:
    """Wait for it; the test's time limit ends what never comes."""
    while not seen():
        time.sleep(0.05)


@contextmanager
def holding(state: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the file, until it is killed."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(state)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_second_object_of_the_same_process_is_refused(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """Compactor or view, whichever is first; another file goes on, and so does the same one when it was closed."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", "high", 2), ("a", "low", 1))
    state = tmp_path / "state"
    for first, other in ((TopicCompactor, CompactedView), (CompactedView, TopicCompactor)):
        with first(kafka.client_config(), topic_name, path=state):
            for second in (first, other):
                with pytest.raises(StateInUseError, match=r"state.*(stop|close).*another file") as raised:
                    second(kafka.client_config(), topic_name, path=state)
                assert raised.value.setting == "state"
                assert isinstance(raised.value, ConfigError)
            with other(kafka.client_config(), topic_name, path=tmp_path / "other"):
                pass
        with other(kafka.client_config(), topic_name, path=state):
            pass


def test_what_could_not_be_made_holds_nothing(kafka: KafkaUnderTest, topic_name: str, tmp_path: Path) -> None:
    """A topic that is not there yet: the same process may try again."""
    for kind in (TopicCompactor, CompactedView):
        with pytest.raises(TopicNotFoundError) as kept:  # with its traceback, and so with the objects of the call
            kind(kafka.client_config(), topic_name, path=tmp_path / "state")
        VersionStore(tmp_path / "state").close()
        assert kept.value.__traceback__ is not None


def test_a_close_that_fails_holds_nothing(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the disk is full: the error is told, and the file can be opened again."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", "x", 1))

    def fail(*_: object) -> None:
        raise ConfigError("state", "it cannot be used (disk full)", "name another file")

    view = CompactedView(kafka.client_config(), topic_name, path=tmp_path / "state").load()
    with monkeypatch.context() as patch:
        patch.setattr(VersionTable, "save", fail)
        with pytest.raises(ConfigError, match="disk full"):
            view.close()
    compactor = TopicCompactor(kafka.client_config(), topic_name, path=tmp_path / "state")
    view.close()  # a second time it does nothing, to the file of another one neither
    with pytest.raises(StateInUseError):
        VersionStore(tmp_path / "state")
    with monkeypatch.context() as patch:
        patch.setattr(VersionTable, "close", fail)
        with pytest.raises(ConfigError, match="disk full"):
            compactor.close()
    with CompactedView(kafka.client_config(), topic_name, path=tmp_path / "state") as again:
        assert dict(again.load().items()) == {b"a": b"x"}
    compactor._table.close()


def test_a_second_process_is_refused_until_the_first_is_killed(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path
) -> None:
    """The second one has read and written nothing: not the file, and it fences nobody. Who only looks goes on looking.

    After a SIGKILL the next one goes on at once.
    """
    TopicAdmin(kafka.client_config()).create(topic_name, 1, config=HEADER)
    send(kafka, topic_name, ("a", "high", 2), ("a", "low", 1))
    state = tmp_path / "state"
    reach = ["--bootstrap-server", kafka.bootstrap_servers, "--topic", topic_name, "--state", str(state)]
    command = [sys.executable, "-m", "keyorder", "compact"]
    first = subprocess.Popen([*command, "run", "--follow", *reach], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: state.exists() and len(dump(kafka, topic_name)) == 3)
        for words in (["run", "--follow"], ["run"], ["plan"], ["view"]):
            line = [*command, *words, *reach, "--output", "json"]
            second = subprocess.run(line, capture_output=True, text=True, timeout=100)
            error = json.loads(second.stdout)["error"]
            assert (second.returncode, error["type"], error["retriable"]) == (2, "StateInUseError", True), second
            assert str(state) in error["message"]
            assert "--state" in error["message"]
        with pytest.raises(StateInUseError):
            TopicCompactor(kafka.client_config(), topic_name, path=state)
        send(kafka, topic_name, ("a", "low again", 1))
        until(lambda: len(dump(kafka, topic_name)) == 5)
        # The look above is with the file; one more save shows that the first one goes on writing under it.
        saved = facts_of(state)["saved_at_ms"]
        until(lambda: facts_of(state)["saved_at_ms"] > saved)
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate(timeout=60)
    assert first.returncode == -signal.SIGKILL

    with TopicCompactor(kafka.client_config(), topic_name, path=state) as it:
        assert it.run().appends == 0
    with CompactedView(kafka.client_config(), topic_name, path=state) as view:
        assert dict(view.load().items()) == {b"a": b"high"}


def test_no_file_that_is_left_blocks_a_start(tmp_path: Path) -> None:
    """Killed again and again: whatever lies there then, it is the kernel that says who lives."""
    state = tmp_path / "state"
    for _ in range(2):
        with holding(state) as process:
            with pytest.raises(StateInUseError):
                VersionStore(state)
            process.kill()
            process.wait(60)
            VersionStore(state).close()


def test_another_name_of_the_same_file_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link, and a path from another folder."""
    (tmp_path / "link").symlink_to(tmp_path / "state")
    (tmp_path / "folder").mkdir()
    (tmp_path / "beside").symlink_to(tmp_path / "folder")
    monkeypatch.chdir(tmp_path)
    for one, two in (("link", "state"), ("folder/state", "beside/state")):
        store = VersionStore(tmp_path / one)
        with pytest.raises(StateInUseError):
            VersionStore(Path(two))
        store.close()
        VersionStore(Path(two)).close()


def test_a_refused_store_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    """Not a byte, also where it would have made the tables of its own."""
    state = tmp_path / "state"
    with holding(state):
        before = {path.name: path.read_bytes() for path in sorted(tmp_path.iterdir())}
        with pytest.raises(StateInUseError):
            VersionStore(state)
        assert {path.name: path.read_bytes() for path in sorted(tmp_path.iterdir())} == before


def test_a_child_that_was_forked_holds_nothing(tmp_path: Path) -> None:
    """It has the files of its parent, and may live on: the parent's end frees the state all the same; its own does not."""
    state = tmp_path / "state"
    told = "import os\nchild = os.fork()\nif child: print(child, flush=True)"
    forks = HOLD.replace('print("held", flush=True)', told)
    with subprocess.Popen([sys.executable, "-c", forks, str(state)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            with pytest.raises(StateInUseError):
                VersionStore(state)
            parent.kill()
            parent.wait(60)
            VersionStore(state).close()
        finally:
            os.kill(child, signal.SIGKILL)
            parent.kill()

    store = VersionStore(state)
    pid = os.fork()
    if pid == 0:
        store.close()
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(StateInUseError):
        VersionStore(state)
    store.close()


def test_a_temporary_store_is_its_own(tmp_path: Path) -> None:
    """Without a file there is nothing to share, and nothing is left."""
    stores = [VersionStore(memory_limit=1) for _ in range(2)]
    for store in stores:
        store.write_down({})
        store.close()


def test_a_lock_file_of_another_user_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may only read it is kept apart all the same. Root may write everywhere, so the refusal is made here."""
    state = tmp_path / "state"
    VersionStore(state).close()

    def opened(name: str, mode: str) -> IO[bytes]:
        if mode != "rb":
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return open(name, "rb")

    monkeypatch.setattr(state_lock, "open", opened, raising=False)
    store = VersionStore(state)
    with pytest.raises(StateInUseError):
        VersionStore(state)
    store.close()
    (tmp_path / "state-lock").unlink()
    with pytest.raises(ConfigError, match="Permission denied"):
        VersionStore(state)


def test_a_worker_process_can_tell_of_it(tmp_path: Path) -> None:
    """An error crosses processes by pickling."""
    told = pickle.loads(pickle.dumps(StateInUseError(tmp_path / "state")))
    assert (type(told), str(told), told.path) == (
        StateInUseError,
        str(StateInUseError(tmp_path / "state")),
        tmp_path / "state",
    )


def test_a_folder_that_takes_no_lock_is_named(tmp_path: Path) -> None:
    """One typed error, as for the file itself."""
    with pytest.raises(ConfigError, match=r"nowhere/state cannot be used") as raised:
        VersionStore(tmp_path / "nowhere" / "state")
    assert not isinstance(raised.value, StateInUseError)
