"""An earlier version and today's on one topic, as writers, members and controllers, while one takes the other's place."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.cluster import KafkaUnderTest
from support.wheel import build_wheel, earlier_wheel
from support.workload import Workload, assert_in_order

# What stands in for a release before 0.2.0: none was made. It writes the control records of version 0.1.0.
EARLIER = "f5429eda43103ef824287d993c00f0c43d68422b"
Environment = dict[str, str]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Environment]:
    """The environments in which a process imports the earlier version, and today's: each from its wheel."""
    found = {}
    for name, build in (("earlier", lambda out: earlier_wheel(EARLIER, out)), ("today", build_wheel)):
        out = tmp_path_factory.mktemp(name)
        place = out / "unpacked"
        with zipfile.ZipFile(build(out)) as archive:
            archive.extractall(place)
        found[name] = {**os.environ, "PYTHONPATH": str(place)}
        look = [sys.executable, "-c", "import keyorder; print(keyorder.__file__)"]
        seen = subprocess.run(look, env=found[name], capture_output=True, text=True, check=True, cwd=out)
        assert seen.stdout.startswith(str(place))
    return found


@pytest.mark.nightly
@pytest.mark.parametrize(("first", "second"), [("earlier", "today"), ("today", "earlier")])
def test_versions_replace_each_other_while_the_topic_changes(
    kafka: KafkaUnderTest, tmp_path: Path, topic_name: str, versions: dict[str, Environment], first: str, second: str
) -> None:
    """Members first, then writers, one after another, with growth and shrink by either version in between: 0/0/0."""
    before, after = versions[first], versions[second]
    with Workload(kafka, tmp_path, topic_name, config={"keyorder.view.age.ms": "500"}) as run:
        writers = [run.writer(f"w{n}", env=before, rate=300, keys=60) for n in range(2)]
        members = [run.consumer(f"c{n}", "group", env=before) for n in range(2)]
        for writer in writers:
            writer.expect_progress(run)
        assert run.expand(6, before) == 0
        for n, member in enumerate(members):
            member.stop()
            run.consumer(f"d{n}", "group", env=after)
            assert run.resize(7 - n, (after, before)[n]) == 0
        for n, writer in enumerate(writers):
            newer = run.writer(f"wn{n}", env=after, rate=300, keys=60)
            newer.expect_progress(run)
            assert writer.stop()["left"] == 0
            assert run.resize(8 - 3 * n, (before, after)[n]) == 0
        for worker in run.workers[-2:]:
            worker.expect_progress(run, 200)
        assert_in_order(run.finish())
