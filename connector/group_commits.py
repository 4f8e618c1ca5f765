"""What groups have committed, each asked for through a consumer of that group which never joins it.

Not through an AdminClient: when a broker answers that it is not the group's coordinator, as one does that was just restarted,
the client library ends the process there (a segmentation fault in every version so far). A consumer looks for the new one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tenacity import retry_if_exception, stop_after_delay, wait_exponential

from ..partitioner.errors import NotAuthorizedError
from ..partitioner.errors.roots import is_passing
from ..partitioner.gates.starts import Commit, epoch_of
from . import clock
from .attempts import Attempts
from .config import connection_of
from .kafka_errors import translate, translate_of_known
from .messages import Place

_AT_ONCE = 16
# Seconds of one try. In between it shows whether the group may be asked about: the library tells that beside the call.
_FIRST_TRY, _LONGEST_TRY = 0.25, 1.0
# A kept client of a group that nobody has asked about for so long makes place for another one.
_STALE = 60.0


class GroupCommits:
    """Reads commits of groups; joins nothing. Thread-safe; `close` it if it keeps clients.

    keep: how many clients stay open between two reads, for whoever asks about the same groups again and again.
    """

    def __init__(self, config: Mapping[str, Any], keep: int = 0) -> None:
        self._config, self._keep = connection_of(config), keep
        self._servers = str(config.get("bootstrap.servers"))
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Consumer, float]] = {}
        self._served = False  # a coordinator has answered: the login is good

    def read(
        self, groups: Iterable[str], places: Collection[Place], timeout: float = 10.0, known: bool = False
    ) -> dict[str, dict[Place, Commit]]:
        """{group: {place: its commit}}; what was committed in an open transaction does not count yet.

        timeout: seconds that one group's answer may take. A group that does not exist has an empty map.
        known: the login was good once, so a refusal passes, as it does after an answer: a token has just run out.
        Raises NotAuthorizedError (a group or topic may not be described), BrokerUnreachableError, KafkaOperationError.
        """
        named = list(dict.fromkeys(groups))
        # There are groups without a name, of simple consumers of old; a client of such a group ends the process.
        asked = [group for group in named if group and places]
        reading = _Reading(asked, known or self._served)
        if len(asked) == 1:
            reading.found[asked[0]] = self._read_one(reading, asked[0], places, timeout)
        else:
            self._read_many(reading, places, timeout)
        return {group: reading.found.get(group, {}) for group in named}

    def close(self) -> None:
        """Release the clients; they are made again when needed."""
        self.close_idle(0.0)

    def close_idle(self, seconds: float) -> None:
        """Release the clients that nobody has asked through for so long."""
        before = clock.now() - seconds
        with self._lock:
            gone = [group for group, (_, used) in self._kept.items() if used <= before]
            clients = [self._kept.pop(group)[0] for group in gone]
        for client in clients:
            client.close()

    def _read_many(self, reading: _Reading, places: Collection[Place], timeout: float) -> None:
        workers = [
            threading.Thread(target=self._work, args=(reading, places, timeout), name="keyorder-commits", daemon=True)
            for _ in range(min(_AT_ONCE, len(reading.waiting)))
        ]
        try:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        finally:
            reading.stopped = True  # an interrupt: each thread ends with the try that it is in
        if reading.failure is not None:
            raise reading.failure

    def _work(self, reading: _Reading, places: Collection[Place], timeout: float) -> None:
        """Ask about one group after the other, as the other threads of this reading do."""
        while not reading.stopped:
            try:
                group = reading.waiting.popleft()
            except IndexError:
                return
            try:
                reading.found[group] = self._read_one(reading, group, places, timeout)
            except BaseException as error:
                reading.failure = reading.failure or error
                reading.stopped = True

    def _read_one(
        self, reading: _Reading, group: str, places: Collection[Place], timeout: float
    ) -> dict[Place, Commit]:
        client = self._take(group)
        try:
            answers = self._ask(reading, client, group, [TopicPartition(*place) for place in sorted(places)], timeout)
        except BaseException:
            client.close()
            raise
        self._served = True
        self._put_back(group, client)
        commits = {}
        for answer in answers:
            if answer.error is not None:
                raise translate(answer.error, *_what(group), self._servers)
            if answer.offset >= 0:
                commits[answer.topic, answer.partition] = Commit(answer.offset, epoch_of(answer.metadata))
        return commits

    def _ask(
        self, reading: _Reading, client: Consumer, group: str, places: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        tries, deadline = 0, clock.now() + timeout

        def once() -> list[TopicPartition]:
            nonlocal tries
            tries += 1
            longest = min(_LONGEST_TRY, _FIRST_TRY * 2 ** min(tries - 1, 8))
            try:
                return client.committed(places, timeout=max(0.01, min(longest, deadline - clock.now())))
            except KafkaException as raised:
                if raised.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return []
                self._raise_what_was_told(reading, client, group)
                raise reading.typed(raised.args[0], *_what(group), self._servers) from raised

        return Attempts(
            stop=stop_after_delay(timeout),
            wait=wait_exponential(multiplier=0.02, max=0.5),
            retry=retry_if_exception(lambda error: not reading.stopped and is_passing(error)),
            reraise=True,
        )(once)

    def _raise_what_was_told(self, reading: _Reading, client: Consumer, group: str) -> None:
        """Raise what the client was told beside the call and what no second try changes."""
        while (event := client.poll(0)) is not None:
            error = event.error()
            typed = None if error is None else reading.typed(error, *_what(group), self._servers)
            if isinstance(typed, NotAuthorizedError):
                raise typed

    def _take(self, group: str) -> Consumer:
        with self._lock:
            client, _ = self._kept.pop(group, (None, 0.0))
        if client is not None:
            return client
        config = {
            **self._config,
            "group.id": group,
            "enable.auto.commit": False,
            # A pending transactional offset must not hide the others.
            "isolation.level": "read_uncommitted",
        }
        try:
            return Consumer(config)
        except KafkaException as raised:
            # No broker has refused anything: there is no token, or a file of certificates is being replaced.
            raise translate_of_known(raised.args[0], *_what(group), self._servers) from raised

    def _put_back(self, group: str, client: Consumer) -> None:
        """Keep the client, if there is room; close it, or another one of the group, otherwise."""
        now, gone = clock.now(), [client]
        with self._lock:
            if len(self._kept) >= self._keep:
                stale = next((g for g, (_, used) in self._kept.items() if now - used > _STALE), None)
                if stale is not None:
                    gone.append(self._kept.pop(stale)[0])
            if len(self._kept) < self._keep and group not in self._kept:
                self._kept[group] = client, now
                gone.remove(client)
        for each in gone:
            each.close()


class _Reading:
    """One call of `read`, shared by its threads. typed: makes the errors of the client library ours."""

    def __init__(self, groups: Iterable[str], known: bool) -> None:
        self.typed = translate_of_known if known else translate
        self.waiting = deque(groups)
        self.found: dict[str, dict[Place, Commit]] = {}
        self.failure: BaseException | None = None
        self.stopped = False


def _what(group: str) -> tuple[str, str]:
    return "read the offsets of", f"group {group}"
