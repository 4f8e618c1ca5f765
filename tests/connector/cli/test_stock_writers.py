"""`keyorder topics expand|shrink` of a topic that producers without keyorder write: refused until they are accepted."""

from __future__ import annotations

from keyorder import OrderedProducer, TopicAdmin
from support.cluster import KafkaUnderTest
from support.commands import Command
from support.stock import stock, written_by_stock

QUICK = {"keyorder.view.age.ms": "300"}
ACCEPT = "--accept-stock-writers"


def test_the_first_change_of_a_topic_that_a_stock_producer_writes_has_to_be_accepted(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command
) -> None:
    """Its records lie where an OrderedProducer's would. That the log grows while no OrderedProducer is live shows it."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK, initial_partition_count=1)
    to = ("--topic", topic_name, "--partitions")
    with written_by_stock(kafka, topic_name):
        for command, count in (("expand", 3), ("shrink", 1)):
            refused = keyorder("topics", command, *to, count)
            assert (refused.code, refused.error["type"]) == (3, "StockWritersError")
            assert ACCEPT in refused.error["message"]
            assert "WARNING" in refused.err
            dry = keyorder("topics", command, *to, count, "--dry-run")
            assert (dry.code, dry.document["stock_producers"]["unaccounted"] > 0) == (3, True)
            assert f"Would be refused: topic '{topic_name}'" in " ".join(dry.err.split())
            assert keyorder("topics", command, *to, count, "--dry-run", ACCEPT).code == 0
        assert admin.timeline(topic_name).newest.number == 0
        assert keyorder("topics", "expand", *to, 2, "--dry-run").code == 0  # it has that count
        looked = keyorder("topics", "plan", *to, 3)
        assert (looked.code, looked.document["stock_producers"]["unaccounted"] > 0) == (0, True)
        assert keyorder("topics", "expand", *to, 2).document["changed"] is False
        accepted = keyorder("topics", "expand", *to, 3, ACCEPT)
        assert (accepted.code, accepted.document["after"]) == (0, 3)
    assert "stock-writers" in [warning["code"] for warning in accepted.document["warnings"]]
    quiet = TopicAdmin(kafka.client_config())
    quiet.create(f"{topic_name}-quiet", 1, config=QUICK)
    assert keyorder("topics", "expand", "--topic", f"{topic_name}-quiet", "--partitions", 2).code == 0


def test_a_stock_producers_records_among_the_newest_have_to_be_accepted(
    kafka: KafkaUnderTest, topic_name: str, keyorder: Command
) -> None:
    """Beside a live OrderedProducer too, once keys have moved. A change that was begun is resumed without a question."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2, config=QUICK)
    to = ("--topic", topic_name, "--partitions")
    with OrderedProducer(kafka.client_config()) as producer:
        for number in range(8):
            producer.produce(topic_name, b"v", b"k%d" % number)
        assert producer.flush(120) == 0
        grown = keyorder("topics", "expand", *to, 3)
        assert (grown.code, [w["code"] for w in grown.document["warnings"]]) == (0, ["keys-move"])
        again = keyorder("topics", "expand", *to, 4)
        assert (again.code, [w["code"] for w in again.document["warnings"]]) == (0, ["keys-move"])
        beside = stock(kafka)
        for number in range(64):
            beside.produce(topic_name, b"v", b"s%d" % number)
        assert beside.flush(120) == 0
        for command, count in (("expand", 5), ("shrink", 3)):
            refused = keyorder("topics", command, *to, count)
            assert (refused.code, refused.error["type"]) == (3, "StockWritersError")
            seen = keyorder("topics", command, *to, count, "--dry-run").document["stock_producers"]
            assert seen["records"] > 0
            assert f"{seen['records']} of the newest records" in refused.error["message"]
        assert admin.timeline(topic_name).newest.count == 4
        accepted = keyorder("topics", "shrink", *to, 3, ACCEPT)
        assert (accepted.code, accepted.document["after"]) == (0, 3)
