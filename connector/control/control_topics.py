"""The two control topics: where a record of theirs lives, and that they exist as they must."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one in Python 3.10

from confluent_kafka import KafkaError, KafkaException, murmur2
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs forget to re-export these
    AdminClient,
    NewTopic,
)

from ...partitioner.errors import BrokerUnreachableError, ConfigError, NotAuthorizedError, TopicNotFoundError
from ...partitioner.records.control_records import CONTROL_TOPIC, WRITERS_TOPIC
from ..kafka_errors import translate
from ..metadata import cluster_metadata, partition_counts, patiently, topic_config, wait_for_partitions
from .rights import require_new

PARTITIONS = 8
_BOTH = {CONTROL_TOPIC, WRITERS_TOPIC}
_DEFAULT_MESSAGE_BYTES = 1_048_588  # Kafka's own default of max.message.bytes
_UNAUTHORIZED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
Slot = tuple[str, int]


def timeline_slot(topic: str) -> Slot:
    """Where the timeline and the waivers of `topic` are."""
    return CONTROL_TOPIC, murmur2(topic.encode(), PARTITIONS)


def writer_slot(writer: str, transactional_id: str | None = None) -> Slot:
    """Where the leases and READYs of `writer` are: all that ever used one transactional id stand in one order."""
    return WRITERS_TOPIC, murmur2((transactional_id or writer).encode(), PARTITIONS)


def all_writer_slots() -> list[Slot]:
    """Every place where a writer may be."""
    return [(WRITERS_TOPIC, p) for p in range(PARTITIONS)]


def existing(admin: AdminClient, bootstrap_servers: str, timeout: float = 10.0) -> bool:
    """Whether both control topics are there.

    Raises BrokerUnreachableError, ConfigError for foreign ones, NotAuthorizedError for one that is hidden from this user.
    """
    missing = _not_seen(admin, bootstrap_servers, timeout)
    for name in missing:
        require_new(admin, bootstrap_servers, name)
    return not missing


def _not_seen(admin: AdminClient, bootstrap_servers: str, timeout: float) -> list[str]:
    """Control topics that the cluster does not show. Raises BrokerUnreachableError, ConfigError for foreign ones."""
    counts = partition_counts(admin, _BOTH, bootstrap_servers, timeout)
    for name, count in counts.items():
        if count != PARTITIONS:
            raise ConfigError(
                name,
                f"it has {count} partitions, keyorder's has {PARTITIONS}",
                "another program made it: remove it, or give keyorder a cluster where that name is free",
            )
    return sorted(_BOTH - counts.keys())


def ensure(admin: AdminClient, bootstrap_servers: str, timeout: float = 20.0) -> None:
    """Make the control topics where they are missing, and check how they are set up.

    Raises NotAuthorizedError, BrokerUnreachableError, ConfigError (a control topic that may lose records).
    """
    if missing := _not_seen(admin, bootstrap_servers, timeout):
        replicas = min(3, len(cluster_metadata(admin, bootstrap_servers, timeout).brokers))
        settings = {
            "cleanup.policy": "compact",
            "min.insync.replicas": "2" if replicas >= 3 else "1",
            "unclean.leader.election.enable": "false",
            "compression.type": "producer",
            # What the broker says of when a record came can be compared: how long ago a lease was renewed, or a change made.
            "message.timestamp.type": "LogAppendTime",
            # The cleaner never touches the newest segment, and by default that is a week's: of renewals, gigabytes.
            "segment.ms": "600000",
            "min.cleanable.dirty.ratio": "0.2",
        }
        wanted = [NewTopic(name, PARTITIONS, replicas, config=settings) for name in missing]
        for name, future in admin.create_topics(wanted, operation_timeout=timeout).items():
            try:
                future.result(timeout)
            except KafkaException as raised:
                code = raised.args[0].code()
                if code in _UNAUTHORIZED:
                    # A broker hides a topic from whoever may not describe it: this may be an old one as well.
                    raise NotAuthorizedError(
                        "read",
                        f"control topic {name}",
                        f"or it is not there, and has to be created: {raised.args[0].name()}",
                    ) from raised
                if code != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise translate(raised.args[0], "create", f"control topic {name}", bootstrap_servers) from raised
            except FutureTimeout as raised:
                raise BrokerUnreachableError(bootstrap_servers, f"create control topic {name}") from raised
        for name in (CONTROL_TOPIC, WRITERS_TOPIC):
            wait_for_partitions(admin, name, PARTITIONS, bootstrap_servers, timeout)

    # One that was just made is not known to every broker yet.
    patiently(lambda: check_policy(admin, bootstrap_servers), timeout)


def record_limit(admin: AdminClient, bootstrap_servers: str) -> int:
    """How many bytes a timeline may have: half of what `_keyorder` takes, so that an edit fits in any case.

    Kafka's default counts for a user that may not describe the control topic, and while the broker that would answer has
    just died: a change has to survive that, and gives its attempt up where the record does not fit after all.
    """
    try:
        found = topic_config(admin, CONTROL_TOPIC, bootstrap_servers)
    except (NotAuthorizedError, BrokerUnreachableError):
        found = {}
    return int(found.get("max.message.bytes", _DEFAULT_MESSAGE_BYTES)) // 2


def check_policy(admin: AdminClient, bootstrap_servers: str) -> None:
    """Refuse a control topic whose records may be deleted: with them the layout of every topic would be lost.

    A user that may not describe configs passes: whoever made the topics has checked them. Raises ConfigError,
    BrokerUnreachableError.
    """
    for name in (CONTROL_TOPIC, WRITERS_TOPIC):
        try:
            policy = topic_config(admin, name, bootstrap_servers)["cleanup.policy"]
        except NotAuthorizedError:
            return
        except TopicNotFoundError as raised:
            raise BrokerUnreachableError(bootstrap_servers, f"describe control topic {name}") from raised
        if policy != "compact":
            raise ConfigError(
                f"cleanup.policy of {name}",
                f"{policy!r} deletes control records",
                "set it to compact with kafka-configs, before anything else",
            )
