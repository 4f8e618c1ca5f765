"""Commands that are ended from outside, by a service manager, a closed terminal or Ctrl-C, leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from keyorder import OrderedConsumer, TopicAdmin
from keyorder.connector.cli.consume import CONSOLE_GROUP
from keyorder.connector.cli.signals import interrupted_by_signals, stopped_by_signals
from support.cluster import KafkaUnderTest
from support.commands import Command

ENDS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@contextmanager
def running(kafka: KafkaUnderTest, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`keyorder <words>`, killed if it does not end."""
    command = [sys.executable, "-m", "keyorder", *words, "--bootstrap-server", kafka.bootstrap_servers]

    def as_in_a_terminal() -> None:
        for number in ENDS:  # whoever runs tests in the background may ignore them
            signal.signal(number, signal.SIG_DFL)

    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=as_in_a_terminal,
    ) as process:  # fmt: skip
        watchdog = threading.Timer(240, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


@pytest.mark.parametrize("number", ENDS)
def test_a_reader_takes_its_temporary_group_with_it(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command, number: signal.Signals
) -> None:
    """It would show as lag for ever, and its member would be waited for."""
    TopicAdmin(kafka.client_config()).create(topic_name, 1)
    with running(kafka, "produce", "--topic", topic_name) as writer:
        assert writer.communicate("a\n")[0] == "1 record acknowledged\n"
    with running(kafka, "consume", "--topic", topic_name, "--from-beginning") as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "a\n"
        reader.send_signal(number)
        out, said = reader.communicate()
        assert (out, said.strip()) == ("", "Interrupted.")
    assert reader.returncode == 130
    groups = [found["group"] for found in keyorder("groups", "list").document["groups"]]
    assert [group for group in groups if group.startswith(CONSOLE_GROUP)] == []


@pytest.mark.parametrize("number", ENDS)
def test_a_writer_gives_its_lease_back(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command, number: signal.Signals
) -> None:
    """The next change would wait for the lease's end."""
    config = kafka.client_config()
    TopicAdmin(config).create(topic_name, 1)
    with running(kafka, "produce", "--topic", topic_name) as writer:
        assert writer.stdin is not None
        writer.stdin.write("a\n")
        writer.stdin.flush()
        with OrderedConsumer({**config, "group.id": topic_name, "auto.offset.reset": "earliest"}) as reader:
            reader.subscribe([topic_name])
            assert reader.consume(1, 240)[0].value() == b"a"
        assert len(keyorder("topics", "describe", "--topic", topic_name).document["writers"]) == 1
        writer.send_signal(number)
        assert writer.stderr is not None
        assert writer.stderr.read().strip() == "Interrupted."
        assert writer.wait() == 130
    assert keyorder("topics", "describe", "--topic", topic_name).document["writers"] == []


def test_a_closed_terminal_says_so_twice() -> None:
    """The terminal and its shell each send SIGHUP: the second must not cut short what the first has begun."""
    with hang_ups_noticed():
        tidied = []
        with interrupted_by_signals():
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGHUP)
            tidied.append(True)
            with pytest.raises(KeyboardInterrupt):  # the operator's own, who does not want to wait
                os.kill(os.getpid(), signal.SIGTERM)
        assert tidied

        with stopped_by_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.is_set()


def test_what_nohup_starts_goes_on_without_its_terminal() -> None:
    """Whoever has a command ignore SIGHUP means it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupted_by_signals(), stopped_by_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.is_set()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@contextmanager
def hang_ups_noticed() -> Iterator[None]:
    """SIGHUP as in a terminal, whoever runs this test."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
