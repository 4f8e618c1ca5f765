"""The job that erases writers that are gone, on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from confluent_kafka.admin import NewTopic
from keyorder import OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.control.control_reader import ControlReader
from keyorder.connector.control.control_topics import all_writer_slots
from keyorder.connector.topology.expired_writer_job import ExpiredWriterJob
from keyorder.partitioner.errors import BrokerUnreachableError
from support.cluster import ClusterSpec, KafkaFactory, KafkaUnderTest
from support.holding import until

# A lease that is soon over.
SHORT = {
    "keyorder.lease.ms": "900",
    "keyorder.lease.renew.interval.ms": "100",
    "delivery.timeout.ms": "300",
    "keyorder.lease.margin.ms": "100",
}


def keys(config: dict[str, str]) -> set[bytes]:
    """Of which keys a reader that starts now finds a record."""
    reader = ControlReader(config, fetch_wait_ms=50)
    reader.add(all_writer_slots())
    found = {message.key for message in reader.read_to_end() if message.value is not None}
    reader.close()
    return found


def erases(job: ExpiredWriterJob) -> bool:
    """Whether a turn of it has erased something; one that a broker does not answer has not."""
    with suppress(BrokerUnreachableError):
        return job.run() is not None
    return False


def test_who_is_gone_is_erased_and_who_lives_stays(kafka_factory: KafkaFactory) -> None:
    """Those that left leave nothing behind; a living writer is counted by a change as before, and goes on."""
    config = kafka_factory().client_config()
    admin = TopicAdmin(config)
    admin.create("t", 2, config={"keyorder.view.age.ms": "200"})
    job = ExpiredWriterJob(config, quiet_s=0.5)  # nobody goes before four times the length of his own lease
    with OrderedProducer({**config, "keyorder.writer.id": "living"}) as living:
        living.produce("t", b"v", b"k")
        assert living.flush(120) == 0
        for _ in range(3):
            with OrderedProducer({**config, **SHORT}) as gone:
                gone.produce("t", b"v", b"k")
        assert len(keys(config)) >= 4
        deadline = clock.now() + 180
        erased = 0
        while {key.rpartition(b":")[2] for key in keys(config)} != {b"living"}:
            assert clock.now() < deadline
            facts = job.run()
            erased += int(str(facts["erased"])) if facts else 0
        assert erased >= 3
        assert job.run() is None
        assert admin.expand("t", 3).changed
        living.produce("t", b"v", b"k")
        assert living.flush(120) == 0
    job.close()


def test_a_broker_that_is_away_at_first_is_asked_again(start_kafka: Callable[[ClusterSpec], KafkaUnderTest]) -> None:
    """The job has not begun then, and begins with its next turn."""
    kafka = start_kafka(ClusterSpec(3, {}, {"broker.session.timeout.ms": "6000"}))
    try:
        config, admin = kafka.client_config(), kafka.admin()
        for name, broker in (("_keyorder", 1), ("_keyorder_writers", 2), ("t", 1)):
            topic = NewTopic(name, 8, replica_assignment=[[broker]] * 8, config={"cleanup.policy": "compact"})
            admin.create_topics([topic])[name].result(30)
        with OrderedProducer({**config, **SHORT}) as gone:
            gone.produce("t", b"v", b"k")
            assert gone.flush(120) == 0
        kafka.kill_broker(2)
        job = ExpiredWriterJob(config, quiet_s=0.0)
        with pytest.raises(BrokerUnreachableError):
            job.run()
        kafka.start_broker(2)
        until(lambda: erases(job))
        job.close()
    finally:
        kafka.stop()
