"""The rights of Spark, Connect, the compactor and commands that look, in docs/security.md: enough, and no row too many."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from keyorder import OrderedProducer, TopicAdmin
from keyorder.compaction.compactor import TopicCompactor
from keyorder.compaction.strategy import encode_version
from keyorder.connector.connect.rest.process import WorkerProcess
from keyorder.connector.doctor.examine import examine
from keyorder.connector.doctor.findings import Finding, Status
from keyorder.connector.operations.overview import Overview
from keyorder.partitioner.errors import KeyorderError
from keyorder.streaming.data_source import KeyorderDataSource
from pyspark.errors import PySparkException
from support.cluster import KafkaUnderTest
from support.connect_rig import group_settings, until
from support.rights import PARTS, SECRET, grant_exactly, rights

RIGHTS = [right for right in rights() if right.role in PARTS]
#: Each right that lacks costs four tries of a Spark task: minutes.
SLOW = {"exactly-once spark sink": pytest.mark.nightly}


class Stage:
    """One topic with a record in it, and what each part does there as the user `app`."""

    def __init__(self, kafka: KafkaUnderTest, topic: str, folder: Path, request: pytest.FixtureRequest) -> None:
        self.kafka, self.topic, self.folder, self.request = kafka, topic, folder, request
        self.root = kafka.client_config()
        self.app = {**kafka.client_config("app"), "log_level": 0}
        self.names = {"TOPIC": topic, "WORKER": f"worker-{topic}"}
        self.runs = 0

    def prepare(self, role: str) -> None:
        """What has to be there before."""
        config = {"cleanup.policy": "compact", "compaction.strategy": "header", "compaction.strategy.header": "v"}
        admin = TopicAdmin(self.root)
        admin.create(self.topic, 2, config={**config, "min.compaction.lag.ms": "120000"} if role == "compactor" else {})
        with OrderedProducer(self.root) as producer:
            for version in (2, 1):
                producer.produce(self.topic, b"before", b"k", headers=[("v", encode_version(version))])
        if role.startswith("connect"):
            with WorkerProcess(group_settings(self.kafka, self.names["WORKER"]), True):
                pass  # its topics are there now
        if role == "exactly-once spark sink":
            self._query(self.root)

    def act(self, role: str) -> None:
        """The part's work; raises what stops it."""
        getattr(self, "as_" + role.replace(" ", "_").replace("-", "_"))()

    def refused(self, role: str) -> str:
        """What stops it, as a user sees it: Spark hands on the error of its Python process as text."""
        try:
            self.act(role)
        except (KeyorderError, PySparkException, Unwell) as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"

    def _spark(self) -> Any:
        session = self.request.getfixturevalue("spark")
        session.dataSource.register(KeyorderDataSource)
        return session

    def _options(self, config: dict[str, Any]) -> dict[str, str]:
        return {f"kafka.{name}": str(value) for name, value in config.items()}

    def as_spark_source(self) -> None:
        self.runs += 1
        read = self._spark().readStream.format("keyorder").options(**self._options(self.app))
        read = read.option("subscribe", self.topic).option("startingOffsets", "earliest")
        name = f"seen{abs(hash(self.topic))}_{self.runs}"
        query = read.load().writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        query.awaitTermination()
        assert self._spark().table(name).count() == 2

    def as_spark_sink(self) -> None:
        frame = self._spark().createDataFrame([("k", "v")], "key string, value string").coalesce(1)
        frame.write.format("keyorder").options(**self._sink(self.app)).mode("append").save()

    def as_exactly_once_spark_sink(self) -> None:
        self._query(self.app)

    def _query(self, config: dict[str, Any]) -> None:
        """One more row, by the one query of this stage: from its second batch on there are markers to be read."""
        self.runs += 1
        rows = self.folder / "rows"
        rows.mkdir(exist_ok=True)
        (rows / f"{self.runs}.json").write_text('{"key": "k", "value": "v"}\n')
        read = self._spark().readStream.schema("key string, value string").json(str(rows))
        write = read.writeStream.format("keyorder").options(**self._sink(config)).trigger(availableNow=True)
        write = write.option("keyorder.sink.exactly.once", "true")
        write.option("checkpointLocation", str(self.folder / "checkpoint")).start().awaitTermination()

    def _sink(self, config: dict[str, Any]) -> dict[str, str]:
        return {**self._options(config), "topic": self.topic}

    def as_connect_worker(self) -> None:
        with self._worker() as worker:
            herder = worker.operations.herder
            until(lambda: worker.check() or herder.state.assignment.leader == herder.membership.member, "it leads")

    def as_compactor(self) -> None:
        with TopicCompactor(self.app, self.topic, margin=10) as it:
            it.run()

    def as_status(self) -> None:
        with closing(Overview(self.app)) as overview:
            assert [found.topic for found in overview.look([self.topic])] == [self.topic]

    def as_doctor(self) -> None:
        found = list(examine(self.app, (self.topic,), 10, 10.0))
        wrong = [f for f in found if f.status in (Status.FAIL, Status.UNKNOWN)]
        if wrong:
            raise Unwell(wrong)

    def _worker(self) -> WorkerProcess:
        app = {**group_settings(self.kafka, self.names["WORKER"]), **{k: str(v) for k, v in self.app.items()}}
        return WorkerProcess(app, True)


class Unwell(Exception):
    """What doctor found instead of an error."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__("\n".join(f"{f.about}: {f.text} {f.fix}" for f in findings))


@pytest.fixture
def stage(guarded: KafkaUnderTest, topic_name: str, tmp_path: Path, request: pytest.FixtureRequest) -> Stage:
    """The topic of a test."""
    return Stage(guarded, topic_name, tmp_path, request)


@pytest.mark.timeout(1200)  # a refused task of Spark is tried again before its query ends
@pytest.mark.parametrize("role", [pytest.param(role, marks=SLOW.get(role, ())) for role in PARTS])
def test_the_rights_of_a_part_are_enough_and_each_is_needed(stage: Stage, role: str) -> None:
    """With exactly these it works; without any one of them one NotAuthorizedError names the resource, and no secret."""
    stage.prepare(role)
    mine = [right for right in RIGHTS if right.role == role]
    for lacking in mine:
        grant_exactly(stage.kafka.admin(), "app", [right for right in mine if right != lacking], stage.names)
        refused = stage.refused(role)
        assert ("Unwell" if role == "doctor" else "NotAuthorizedError") in refused, (str(lacking), refused[-2000:])
        assert lacking.on(stage.names).removesuffix("*") in refused, (str(lacking), refused[-2000:])
        assert SECRET not in refused
    grant_exactly(stage.kafka.admin(), "app", mine, stage.names)
    stage.act(role)
