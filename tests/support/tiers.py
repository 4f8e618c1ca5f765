"""Which tests `make test`, `make test-long` and `make test-nightly` run. A test may bear `long` or `nightly` by itself, too."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

# Minutes of kills, second Sparks, real cleaners, the longest comparison with Spark's source: `make test-nightly` alone runs them.
NIGHTLY = {
    "tests/compaction/test_delta.py",
    "tests/compaction/test_histories.py",
    "tests/integration/test_connect_chaos.py",
    "tests/integration/test_follower_fetching.py",
    "tests/integration/test_rehoming.py",
    "tests/streaming/parity/test_micro_batch.py",
    "tests/streaming/sink/test_chaos.py",
    "tests/streaming/test_notebook.py",
    "tests/streaming/test_spark_cluster.py",
    "tests/streaming/test_spark_connect.py",
    "tests/streaming/test_stateful.py",
}
# Proofs that take their time, of a folder those on real services: `make test-long` runs them after `make test`, and a change
# has to pass both.
LONG = (
    "tests/compaction/test_columns.py",
    "tests/compaction/test_migration.py",
    "tests/compaction/test_placing.py",
    "tests/compaction/test_silence.py",
    "tests/compaction/test_spark.py",
    "tests/compaction/test_state_lock.py",
    "tests/connector/arrow/test_consume_arrow.py",
    "tests/connector/arrow/test_produce_arrow.py",
    "tests/connector/cli/test_dry_runs.py",
    "tests/connector/cli/test_local.py",
    "tests/connector/cli/test_release.py",
    "tests/connector/connect/jvm/",
    "tests/connector/connect/test_failed_records.py",
    "tests/connector/connect/test_mirror.py",
    "tests/connector/connect/test_plugin_kit.py",
    "tests/connector/connect/test_quickstart.py",
    "tests/connector/connect/test_rest_parity.py",
    "tests/connector/local/",
    "tests/connector/test_admin_link.py",
    "tests/connector/test_cluster_link.py",
    "tests/connector/test_forget_job.py",
    "tests/connector/test_logging.py",
    "tests/faults/",
    "tests/integration/",
    "tests/parity/",
    "tests/simulation/test_histories.py",
    "tests/streaming/",
)
# What of these `make test` runs all the same: each promise is shown there once, on a real broker and a real Spark.
SHORT = {
    "tests/integration/test_bad_input.py",
    "tests/integration/test_groups.py",
    "tests/integration/test_growth.py",
    "tests/integration/test_proofs.py",
    "tests/integration/test_strays.py",
    "tests/integration/test_transactions.py",
    "tests/integration/test_writers.py",
    "tests/parity/clients/test_records.py",
    "tests/streaming/test_source.py",
}
# Where each set of parameters is a query, a cluster or a change on real services: the first runs with the rest of its file, all
# others at night.
FIRST_SET = (
    "tests/compaction/test_spark.py",
    "tests/connector/arrow/",
    "tests/connector/connect/test_rest_parity.py",
    "tests/integration/test_dropped_consumers.py",
    "tests/integration/test_hard_consumers.py",
    "tests/integration/test_pause.py",
    "tests/integration/test_rights_of_parts.py",
    "tests/integration/test_whoever_wrote.py",
    "tests/parity/clients/test_expelled_members.py",
    "tests/streaming/parity/",
    "tests/streaming/test_parity.py",
    "tests/streaming/test_parity_late.py",
    "tests/streaming/test_vanishing.py",
)
# A comparison runs at night on the peer as well; by day it shows what keyorder does.
COMPARED = ("tests/integration/", "tests/parity/")
PEER = re.compile(r"(?:^|-)(?:stock|Consumer|Producer)(?:-|$)")


class Tiers:
    """Asked about all tests of a run, in their order."""

    def __init__(self) -> None:
        self._begun: set[tuple[str, str]] = set()

    def of(self, path: str, item: pytest.Item) -> Iterator[pytest.MarkDecorator]:
        """The markers that the test bears besides its own. path: of its file, in the repository."""
        on_services = item.get_closest_marker("kafka") is not None
        if path in NIGHTLY or (on_services and self._is_variant(path, item)):
            yield pytest.mark.nightly
        if path in LONG or (path.startswith(LONG) and path not in SHORT and on_services):
            yield pytest.mark.long

    def _is_variant(self, path: str, item: pytest.Item) -> bool:
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            return False
        if path.startswith(COMPARED) and PEER.search(item.callspec.id):
            return True
        function = path, item.originalname
        begun = function in self._begun
        self._begun.add(function)
        return begun and path.startswith(FIRST_SET)
