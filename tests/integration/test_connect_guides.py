"""The guides run as they stand: every block, in order, against a real broker and a real PostgreSQL."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not re-exported
from support.cluster import KafkaUnderTest
from support.connect_rig import RestClient, until
from support.postgres import Postgres
from support.replaced_writer import ReplacedWriter

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"`(\w+\.properties)`")


class Guide:
    """Runs the blocks of a page. between: called with each block's number after it has run."""

    def __init__(self, page: str, folder: Path, words: dict[str, str], env: dict[str, str]) -> None:
        text = (DOCS / page).read_text()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.rest = f"localhost:{free.getsockname()[1]}"
        for word, other in {**words, "localhost:8083": self.rest}.items():
            text = re.sub(rf"(?<![\w-]){re.escape(word)}\b", other, text)
        self._text, self._folder, self._env = text, folder, env
        self._started: list[subprocess.Popen[bytes]] = []
        self.names: dict[str, Any] = {"wait_until": lambda condition: until(condition, "the guide's condition holds")}

    def __enter__(self) -> Guide:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.terminate()
        for process in self._started:
            assert process.wait(120) == 0, (self._folder / "worker.log").read_text()[-3000:]

    def run(self, between: Any = None) -> int:
        """Every block. Returns how many there were."""
        count = 0
        for count, block in enumerate(_BLOCK.finditer(self._text), 1):
            language, code = block[1], block[2]
            if language == "properties":
                name = _FILE.findall(self._text[: block.start()])[-1]
                (self._folder / name).write_text(code)
            elif language == "sh":
                for line in code.splitlines():
                    self._command(line)
            else:
                exec(compile(code, f"block {count}", "exec"), self.names)
            if between is not None:
                between(code)
        return count

    def _command(self, line: str) -> None:
        words = line.removesuffix("&").split()
        assert words[0] == "keyorder"
        if words[1:3] in (["connect", "parked"], ["connect", "release"]):
            words += ["--url", f"http://{self.rest}"]
        command = [sys.executable, "-m", "keyorder", *words[1:]]
        options: dict[str, Any] = {"cwd": self._folder, "env": {**os.environ, **self._env}}
        if line.endswith("&"):
            with (self._folder / "worker.log").open("wb") as log:
                self._started.append(subprocess.Popen(command, stdout=log, stderr=log, **options))
            until(self._answers, lambda: f"the worker answers: {(self._folder / 'worker.log').read_text()[-2000:]}")
        else:
            done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
            assert done.returncode == 0, done.stderr + done.stdout

    def _answers(self) -> bool:
        try:
            return RestClient(f"http://{self.rest}")("GET", "/connectors").status_code == 200
        except OSError:
            return False
        except Exception as error:
            if "Connect" in type(error).__name__:
                return False
            raise


def test_a_topic_into_postgresql(
    kafka: KafkaUnderTest, tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/connect-postgresql.md."""
    monkeypatch.setenv("DATABASE_URL", postgres.url)
    words = {"localhost:9092": kafka.bootstrap_servers, "orders": f"orders_{os.getpid()}"}
    with Guide("connect-postgresql.md", tmp_path, words, {}) as guide:
        assert guide.run() == 14


def test_migrating_a_topic(kafka: KafkaUnderTest, tmp_path: Path) -> None:
    """docs/connect-migrate.md: each key's records reach the new reader in order, once, across cut-over and growth."""
    old = f"orders_old_{os.getpid()}"
    admin = kafka.admin()
    admin.create_topics([NewTopic(old, 3)])[old].result(120)
    words = {"localhost:9092": kafka.bootstrap_servers, "orders": old, "migration": f"migration_{os.getpid()}"}
    got: dict[str, list[int]] = defaultdict(list)
    stop = threading.Event()

    def read(reader: Any) -> None:
        while not stop.is_set():
            message: Message | None = reader.poll(0.1)
            if message is not None and message.error() is None:
                got[message.key().decode()].append(int(message.value()))  # type: ignore[union-attr, arg-type]
        reader.close()

    threads: list[threading.Thread] = []
    with Guide("connect-migrate.md", tmp_path, words, {}) as guide:
        writers = guide.names["writers"] = ReplacedWriter(kafka.client_config(), old)
        writers.start()

        def between(code: str) -> None:
            if "reader.subscribe" in code:
                threads.append(threading.Thread(target=read, args=(guide.names["reader"],), daemon=True))
                threads[0].start()

        assert guide.run(between) == 9
        before = writers.count()
        until(lambda: writers.count() > before + 50, "writers go on behind the growth")
        writers.finish()
        until(
            lambda: got == writers.sent,
            lambda: f"{sum(map(len, got.values()))} of {sum(map(len, writers.sent.values()))}",
        )
        stop.set()
        threads[0].join(120)
