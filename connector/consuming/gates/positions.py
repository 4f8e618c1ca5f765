"""What the group has processed on partitions that other members own: asked for from outside, joining nothing.

It reads uncommitted offsets metadata-wise: a pending transactional offset on one partition would otherwise block the
answer for all, and what it gets instead is the last offset that was really committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from ....partitioner.errors import KafkaOperationError, KeyorderError, NotAuthorizedError
from ....partitioner.gates.gate_events import Heard
from ....partitioner.gates.starts import Commit
from ... import clock
from ...link import ClusterLink
from ...messages import Place
from ..background import BackgroundThread

# Seconds between two questions, at least and at most. In between: an eighth of the time for which nothing has moved, but
# no less than a fiftieth of the whole wait. A commit is so noticed with little delay compared with what it took, at the
# price of 34 requests in the first second where nothing moves, of 112 where each one finds progress, later of 10 a second.
_SHORTEST, _LONGEST = 0.002, 0.1
# An origin where nothing has moved for a minute is hardly being worked at.
_STILL, _STILL_PAUSE = 60.0, 0.25
_TIMEOUT = 5.0


class GroupPositions(BackgroundThread):
    """Asks for the committed offsets of the places that somebody waits for, often at first, then less often.

    The thread begins with the first place. heard: what is known. failure: why no gate may ever open, for whoever polls.
    """

    def __init__(self, link: ClusterLink, group: str) -> None:
        super().__init__("keyorder-positions")
        self._link, self._group = link, group
        self._watched: frozenset[Place] = frozenset()
        self._expected: Place | None = None
        self._highest: dict[Place, int] = {}
        self.heard = Heard()
        self._began = self._moved_at = 0.0
        self._questions = 0  # asked so far
        self._forgotten: dict[str, int] = {}  # how many had been asked when a topic was forgotten
        self.failure: KeyorderError | None = None

    def watch(self, places: Iterable[Place]) -> None:
        """Ask for these, and only these, from now on."""
        wanted = frozenset(places)
        if wanted == self._watched:
            return
        with self._wake:
            self._watched = wanted
            heard = self.heard
            if not heard.answered <= wanted:
                self.heard = Heard(heard.commits, heard.answered & wanted, heard.changes)
            self._began = self._moved_at = clock.now()
            self._wake.notify_all()
        if wanted:
            self.begin()

    def expect(self, place: Place) -> None:
        """A gate may close soon. Open the client that asks, so that the first question does not wait for it.

        Asks once, about `place`; the answer counts for nothing.
        """
        with self._wake:
            self._expected = place
            self._wake.notify_all()
        self.begin()

    def asked(self, topic: str, partition: int) -> bool:
        """Whether there was an answer since it is watched, be it that there is no commit."""
        return (topic, partition) in self.heard.answered

    def get(self, topic: str, partition: int) -> Commit | None:
        """The last answer, or None."""
        return self.heard.commits.get((topic, partition))

    def highest(self, topic: str, partition: int) -> int:
        """The highest offset ever seen committed there: above the last answer after a commit that went back."""
        return self._highest.get((topic, partition), 0)

    def forget(self, topic: str) -> None:
        """Drop all answers for a topic, also those on their way: a seek or a reset may have moved positions back.

        Only answers to questions asked from now on count.
        """
        with self._wake:
            self._forgotten[topic] = self._questions
            heard = self.heard
            self.heard = Heard(
                {place: commit for place, commit in heard.commits.items() if place[0] != topic},
                frozenset(place for place in heard.answered if place[0] != topic),
                heard.changes + 1,
            )
            self._highest = {place: offset for place, offset in self._highest.items() if place[0] != topic}
            self._began = self._moved_at = clock.now()
            self._wake.notify_all()

    def run(self) -> None:
        """The thread."""
        try:
            self._serve()
        except Exception as error:  # with nobody who asks, gates would stay closed without a word
            self.failure = KafkaOperationError(f"read the offsets of group {self._group}", repr(error))
            raise

    def _serve(self) -> None:
        while True:
            with self._wake:
                if self._watched:
                    now = clock.now()
                    self._wake.wait(pause_after(now - self._moved_at, now - self._began))
                elif self._expected is None and not self._stopping:
                    self._wake.wait()
                if self._stopping:
                    break
                places, expected, self._expected = self._watched, self._expected, None
            if places:
                self._ask(places)
            elif expected is not None:
                with suppress(KeyorderError):  # the first question that counts tells of it
                    self._read([expected])

    def _read(self, places: Collection[Place]) -> Mapping[Place, Commit]:
        # The login is known to be good: a gate closes by a timeline, which was read with it.
        return self._link.commits.read([self._group], places, _TIMEOUT, known=True)[self._group]

    def _ask(self, places: frozenset[Place]) -> None:
        with self._wake:
            self._questions += 1
            number = self._questions
        try:
            found = self._read(places)
        except NotAuthorizedError as error:
            self.failure = error
            return
        except KeyorderError:
            return  # asked again
        with self._wake:
            heard = self.heard
            known = dict(heard.commits)
            answered = {place for place in places if self._forgotten.get(place[0], 0) < number}
            for place in answered:
                commit = found.get(place)
                if commit is not None:
                    known[place] = commit
                    self._highest[place] = max(self._highest.get(place, 0), commit.offset)
                else:
                    known.pop(place, None)  # there is no commit any more
            moved = known != heard.commits
            if moved:
                self._moved_at = clock.now()
            answered &= self._watched
            if moved or not answered <= heard.answered:
                self.heard = Heard(known, heard.answered | answered, heard.changes + 1)


def pause_after(quiet: float, waited: float) -> float:
    """Seconds until the next question: `waited` seconds since the first one, nothing has moved for the last `quiet`."""
    if quiet >= _STILL:
        return _STILL_PAUSE
    return min(max(quiet / 8, waited / 50, _SHORTEST), _LONGEST)
