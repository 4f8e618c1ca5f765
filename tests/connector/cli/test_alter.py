"""`keyorder topics alter` and the settings of `adopt`."""

from __future__ import annotations

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]
from keyorder import TopicAdmin
from support.cluster import KafkaUnderTest
from support.commands import Command

ENABLE, DELAY = "delete.topic.partition.enable", "delete.topic.partition.interval.delay.ms"
ORDERED = "enable.ordered.delivery"


def test_the_command_alters(kafka: KafkaUnderTest, topic_name: str, keyorder: Command) -> None:
    """`topics alter`, with a dry run; `topics adopt --config`; without a setting it is wrong usage."""
    admin = TopicAdmin(kafka.client_config())
    client = kafka.admin()
    client.create_topics([NewTopic(topic_name, 2, 1)])[topic_name].result(120)
    of_topic = ("--topic", topic_name)

    assert keyorder("topics", "adopt", *of_topic, "--config", f"{DELAY}=500").code == 0
    assert keyorder("topics", "alter", *of_topic).code == 2
    dry = keyorder("topics", "alter", *of_topic, "--config", f"{ENABLE}=true", "--dry-run").document
    assert (dry["changed"], dict(admin.timeline(topic_name).settings)) == (True, {DELAY: "500"})
    done = keyorder("topics", "alter", *of_topic, "--config", f"{ENABLE}=true", "--config", f"{ORDERED}=false").document
    assert (done["changed"], done["settings"], done["ordered"]) == (True, {DELAY: "500", ENABLE: "true"}, False)
    again = keyorder("topics", "alter", *of_topic, "--config", f"{ENABLE}=true").document
    assert again["changed"] is False
