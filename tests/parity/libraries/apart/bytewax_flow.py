"""A dataflow of Bytewax from one topic into another: `bytewax_flow.py BROKER TOPIC KIND`, prints what the second then holds."""

from __future__ import annotations

import json
import sys

import bytewax.operators as op
from bytewax.connectors import kafka
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSink, run_main
from keyorder import OrderedConsumer, OrderedProducer


def main(broker: str, topic: str, kind: str) -> None:
    """Statistics come often: Bytewax looks up its partition in each, and ends where it is not there."""
    if kind == "ordered":
        kafka.Consumer, kafka.Producer = OrderedConsumer, OrderedProducer
    often = {"statistics.interval.ms": "20"}
    copy = Dataflow("copy")
    source = op.input("in", copy, KafkaSource([broker], [topic], tail=False, add_config=often))
    rows = op.map("rows", source, lambda message: KafkaSinkMessage(message.key, message.value))
    op.output("out", rows, KafkaSink([broker], f"{topic}-out"))
    run_main(copy)
    found: list[kafka.KafkaSourceMessage] = []
    look = Dataflow("look")
    op.output("out", op.input("in", look, KafkaSource([broker], [f"{topic}-out"], tail=False)), TestingSink(found))
    run_main(look)
    by_key: dict[str, list[str]] = {}
    for message in found:
        by_key.setdefault(message.key.decode(), []).append(message.value.decode())
    print(json.dumps(by_key))


if __name__ == "__main__":
    main(*sys.argv[1:])
