"""What one member owns: its partitions, what is known of their topics, and what was fetched of them and not seen yet."""

from __future__ import annotations

from confluent_kafka import Consumer

from ..config import ConsumerSettings
from ..messages import Place
from .fetching import Fetching
from .partition_state import PartitionState
from .records.delivery_buffer import DeliveryBuffer
from .statistics import Statistics
from .view import View, ViewKeeper


class Assignment:
    """The owned partitions of one consumer. Used by one thread at a time.

    owned: their states, from assignment to revocation. fetching: which of them the client library reads. out: the records
    that the application has not seen. statistics: the library's, from when on they tell of what is owned.
    """

    def __init__(self, raw: Consumer, settings: ConsumerSettings, views: ViewKeeper) -> None:
        self.views = views
        self.owned: dict[Place, PartitionState] = {}
        self.fetching = Fetching(raw, settings, self.owned)
        self.out = DeliveryBuffer(self.owned)
        self.statistics = Statistics(self.owned)
        self._counts: dict[str, int] = {}
        self._topics: frozenset[str] | None = frozenset()

    def own(self, place: Place) -> None:
        """The partition is this member's from now on."""
        self._topics = None
        self.owned[place] = PartitionState(*place)
        self.statistics.assigned(place)
        self._topics = None  # a signal handler may have asked in between

    def give_up(self, places: set[Place]) -> list[PartitionState]:
        """These are not this member's any more. Returns their states; the client library may still read them."""
        self._topics = None
        gone = [self.owned.pop(place) for place in places]
        self._topics = None
        return gone

    def topics(self) -> frozenset[str]:
        """The topics of which this member owns partitions. The same object until some come or go."""
        if self._topics is None:
            self._topics = frozenset(topic for topic, _ in self.owned)
        return self._topics

    def view(self, topic: str) -> View:
        """What is known of a topic now."""
        return self.views.view(topic, self._counts.get(topic, 1))

    def counted(self, topic: str, partitions: int) -> None:
        """The topic has so many partitions."""
        self._counts[topic] = partitions

    def partitions(self, topic: str) -> range:
        """The partitions that the topic had when they were counted last."""
        return range(self._counts[topic])

    def restart_at(self, owned: PartitionState, offset: int) -> None:
        """Go on from another offset, dropping what was fetched and not returned."""
        self.out.drop({owned.place})
        self.fetching.restart_at(owned, offset)
