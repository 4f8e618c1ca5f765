"""A dry run is refused where the command itself is: a script asks it whether the command would go through."""

from __future__ import annotations

import io
import sys
from contextlib import suppress

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewPartitions, NewTopic
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector.control.timeline_edit import edit
from keyorder.partitioner.epochs import ChangePhase
from support.cluster import KafkaFactory, KafkaUnderTest
from support.commands import Command
from support.groups import QUICK, grown

ENABLE = "delete.topic.partition.enable"
DELAY = "delete.topic.partition.interval.delay.ms"


def refusals(keyorder: Command, *words: object) -> list[tuple[int, str]]:
    """How a dry run of the command ends, and how the command: (exit code, error)."""
    runs = [keyorder(*words, *more) for more in (("--dry-run",), ())]
    return [(run.code, run.document.get("error", {}).get("type", "")) for run in runs]


def opened(kafka: KafkaUnderTest, topic: str, count: int) -> None:
    """A change to `count` as a killed controller leaves it."""
    edit(kafka.client_config(), topic, lambda timeline: timeline.opened(count, ChangePhase.PLAN))


def made_anew(kafka: KafkaUnderTest, topic: str, partitions: int) -> None:
    """Delete the topic, and make one of that name beside keyorder."""
    client = kafka.admin()
    client.delete_topics([topic])[topic].result(60)
    while True:
        with suppress(KafkaException):  # as long as the old one is there
            client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
            return


@pytest.fixture
def own(kafka_factory: KafkaFactory) -> KafkaUnderTest:
    """A broker of its own: a topic that was made anew would be in the way of other tests."""
    return kafka_factory()


@pytest.fixture
def on_own(own: KafkaUnderTest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, on that broker."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return Command(own, capsys)


def test_a_released_topic_is_not_to_be_changed(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """It is with stock clients: whatever changes it says so, and takes nothing for granted."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 4, initial_partition_count=2)
    admin.release(topic_name)

    for command, *more in (
        ("alter", "--config", f"{ENABLE}=true"),
        ("drain",),
        ("drain", "--rehome"),
        ("expand", "--partitions", 8),
        ("expand", "--partitions", 4),
        ("shrink", "--partitions", 2),
        ("shrink", "--partitions", 4, "--immediate"),
        ("shrink", "--partitions", 2, "--force", "--confirm", topic_name),
    ):
        found = refusals(keyorder, "topics", command, "--topic", topic_name, *more)
        assert found == [(2, "ReleasedTopicError")] * 2, command


def test_a_released_topic_is_taken_back_only_as_it_was(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command
) -> None:
    """Not with other settings, nor with records elsewhere, nor at another count; a refused adoption leaves it released."""
    config = kafka.client_config()
    admin = TopicAdmin(config)
    admin.create(topic_name, 4)
    admin.release(topic_name)
    adopt = ("topics", "adopt", "--topic", topic_name)

    assert "Would take topic" in keyorder(*adopt, "--dry-run", output="table").out
    assert refusals(keyorder, *adopt, "--config", f"{DELAY}=500") == [(2, "ConfigError")] * 2
    assert refusals(keyorder, *adopt, "--hash", "crc32") == [(2, "LayoutError")] * 2
    stock = Producer({**config, "partitioner": "consistent"})
    for number in range(20):
        stock.produce(topic_name, "v", f"k{number}")
    assert stock.flush(120) == 0
    assert refusals(keyorder, *adopt) == [(3, "MisplacedKeysError")] * 2
    accepted = keyorder(*adopt, "--accept-misplaced", "--dry-run")
    assert (accepted.code, accepted.document["managed"]) == (0, False)
    client = kafka.admin()
    client.create_partitions([NewPartitions(topic_name, 5)])[topic_name].result(120)
    while len(client.list_topics(topic_name, 120).topics[topic_name].partitions) < 5:
        pass
    dry, real = (keyorder(*adopt, "--accept-misplaced", *more) for more in (("--dry-run",), ()))
    assert (dry.code, dry.error) == (real.code, real.error)
    assert dry.error["type"] == "LayoutError"
    assert admin.timeline(topic_name).released is not None


def test_a_managed_topic_is_not_adopted_otherwise(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """With other settings, with another hash, from an initial count that would move keys: each is told before, too."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 4)
    adopt = ("topics", "adopt", "--topic", topic_name)

    assert refusals(keyorder, *adopt) == [(0, "")] * 2
    assert refusals(keyorder, *adopt, "--config", f"{DELAY}=500") == [(2, "ConfigError")] * 2
    assert refusals(keyorder, *adopt, "--hash", "crc32") == [(2, "LayoutError")] * 2
    assert refusals(keyorder, *adopt, "--initial-partition-count", 3) == [(2, "LayoutError")] * 2


def test_a_shrink_that_may_not_empty_anything(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """While the topic's switch is off no wish goes past it, and none is asked to confirm it."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, initial_partition_count=1)
    shrink = ("topics", "shrink", "--topic", topic_name)

    for wish in (("--immediate",), ("--delete-partitions-delay", 0), ("--force",)):
        for count in (1, 2):
            assert refusals(keyorder, *shrink, "--partitions", count, *wish) == [(2, "ConfigError")] * 2, wish
    assert keyorder(*shrink, "--partitions", 1, "--dry-run").code == 0
    admin.alter(topic_name, {ENABLE: "true"})
    assert keyorder(*shrink, "--partitions", 1, "--immediate", "--dry-run").code == 0


def test_a_change_to_another_count_is_open(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """Neither another count nor another setting goes beside it; the same count would resume it."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, initial_partition_count=1, config=QUICK)
    opened(kafka, topic_name, 4)
    expand = ("topics", "expand", "--topic", topic_name)

    for words in (
        (*expand, "--partitions", 3),
        (*expand, "--partitions", 2),
        ("topics", "shrink", "--topic", topic_name, "--partitions", 1),
        ("topics", "alter", "--topic", topic_name, "--config", f"{ENABLE}=true"),
    ):
        assert refusals(keyorder, *words) == [(1, "ChangeOpenError")] * 2, words
    assert refusals(keyorder, *expand, "--partitions", 4) == [(0, "")] * 2
    assert admin.timeline(topic_name).newest.count == 4


def test_a_drain_that_asks_for_consent_or_finds_a_change(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command
) -> None:
    """Where the command would do something now. What only waits is refused by neither."""
    admin = TopicAdmin(kafka.client_config())
    plain, kept = topic_name, f"{topic_name}-kept"
    ours = {**QUICK, ENABLE: "true", DELAY: "3600000"}
    for topic, theirs in ((plain, "delete"), (kept, "compact,delete")):
        admin.create(topic, 2, initial_partition_count=1, config={**ours, "cleanup.policy": theirs})
    with OrderedProducer({**kafka.client_config(), "keyorder.allow.explicit.partition": True}) as producer:
        producer.produce(plain, b"v", partition=1)
        assert producer.flush(120) == 0
    for topic in (plain, kept):
        admin.shrink(topic, 1)
    rehome = ("topics", "drain", "--topic", kept, "--rehome")
    drain = ("topics", "drain", "--topic", plain)

    assert refusals(keyorder, *rehome) == [(0, "")] * 2
    opened(kafka, plain, 2)
    assert refusals(keyorder, *drain) == [(0, "")] * 2
    admin.abort(plain)
    for topic in (plain, kept):
        admin.alter(topic, {DELAY: "1"})
    dry, real = (keyorder(*rehome, *more) for more in (("--dry-run",), ()))
    assert (dry.code, real.code, real.error["type"]) == (3, 3, "ConsentNeededError")
    assert (dry.document["dry_run"], "Would be refused" in dry.err) == (True, True)
    assert keyorder("topics", "drain", "--topic", kept, "--dry-run").code == 0
    assert keyorder(*rehome, "--allow-delete-policy", "--dry-run").code == 0
    for topic, words in ((plain, drain), (kept, (*rehome, "--allow-delete-policy"))):
        opened(kafka, topic, 2)
        dry, real = (keyorder(*words, *more) for more in (("--dry-run",), ()))
        assert (dry.code, real.code, real.error["type"]) == (1, 1, "ChangeOpenError"), topic
        assert f"the layout of '{topic}' is being changed already" in dry.err
        admin.abort(topic)
        assert refusals(keyorder, *words) == [(0, "")] * 2


def test_a_gate_that_is_not_there(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """It is told before anybody is asked; so is a change that is open. A gate that is there would be released."""
    grown(kafka, topic_name)
    group = ("--group", topic_name, "--allow-unknown-group", "--why", "x")
    release = ("gates", "release", "--topic", topic_name, "--partition", 1, *group)

    for epoch in (99, 2):
        dry, real, unasked = (keyorder(*release, "--epoch", epoch, *more) for more in (("--dry-run",), ("--yes",), ()))
        assert (dry.code, dry.error["type"]) == (2, "UsageError")
        assert dry.error == real.error == unasked.error
        assert f"no gate into partition 1 in epoch {epoch}: its gates are 1 in epoch 1" in dry.error["message"]
    assert keyorder(*release, "--epoch", 1, "--dry-run").document["epoch"] == 1
    opened(kafka, topic_name, 3)
    assert refusals(keyorder, *release, "--epoch", 1, "--yes") == [(1, "ChangeOpenError")] * 2


def test_a_topic_that_was_made_anew_is_adopted_by_that_word_alone(
    own: KafkaUnderTest, topic_name: str, on_own: Command
) -> None:
    """Without --again it is refused; with it, its timeline is replaced, and that is what is told."""
    TopicAdmin(own.client_config()).create(topic_name, 2)
    made_anew(own, topic_name, 3)
    adopt = ("topics", "adopt", "--topic", topic_name)
    new = {"initial": 3, "count": 3, "hash": "murmur2"}

    assert refusals(on_own, *adopt) == [(3, "IdentityMismatchError")] * 2
    dry = on_own(*adopt, "--again", "--dry-run").document
    assert (dry["managed"], dry["layout"], dry["sample"]["records"]) == (False, new, 0)
    assert [warning["code"] for warning in dry["warnings"]] == ["keys-move"]
    said = on_own(*adopt, "--again", "--dry-run", output="table").out
    assert f"Would bring topic {topic_name} under management with 3 partitions" in said
    done = on_own(*adopt, "--again").document
    assert (done["adopted"], done["layout"], done["sample"]["records"]) == (True, new, 0)
    assert [warning["code"] for warning in done["warnings"]] == ["keys-move"]
    twice = on_own(*adopt, "--again")
    assert (twice.document["adopted"], twice.document["sample"]) == (False, None)

    made_anew(own, topic_name, 4)
    told = on_own(*adopt, "--again", output="table")
    assert f"Topic {topic_name} is under management now, with 4 partitions" in told.out
    assert "Looked at" in told.out
    assert "WARNING: Once" in told.err


def test_the_changes_of_others_are_shown_beside_a_topic_that_was_made_anew(
    own: KafkaUnderTest, topic_name: str, on_own: Command
) -> None:
    """It is named, and only where it was asked for does the command fail."""
    admin, broken = TopicAdmin(own.client_config()), f"{topic_name}-broken"
    for topic in (topic_name, broken):
        admin.create(topic, 1)
        opened(own, topic, 2)
    made_anew(own, broken, 1)

    shown = on_own("change", "status").document
    assert [each["topic"] for each in shown["changes"]] == [topic_name]
    assert {topic: error["type"] for topic, error in shown["unreadable"].items()} == {broken: "IdentityMismatchError"}
    told = on_own("change", "status", output="table")
    assert (told.code, f"Topic {topic_name}: 1 partitions" in told.out) == (0, True)
    assert f"topic {broken} cannot be read" in " ".join(told.err.split())
    named = on_own("change", "status", "--topic", broken)
    assert (named.code, named.error["type"]) == (3, "IdentityMismatchError")
