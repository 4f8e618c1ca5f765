"""What becomes of a column `version`: the header that an option names, or each topic's own where rows name their topics."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ...partitioner.errors import ConfigError
from .columns import SinkSchemaError
from .options import VERSION_HEADER, SinkOptions, own_header, topics_header


class TopicHeaders:
    """Headers by topic for one task. A topic is looked up at the first of its rows for which that counts, and once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._own: dict[str, str] = {}

    def check(self, topic: str) -> None:
        """For each topic that rows name. Raises as `refuse_versions`."""
        options = self._options
        if options.one_batch and options.version_header is not None and options.topic is None:
            refuse_versions(options, topic, self._own_header(topic))

    def header(self, topic: str, version: pa.Array) -> str | None:
        """The header that a topic's versions become, None where the column is no concern of the sink.

        Raises SinkSchemaError for versions that are no int64, ConfigError, and what an admin raises.
        """
        if not self._options.by_topic:
            return self._options.compaction_header
        found = topics_header(self._options, self._own_header(topic))
        # The driver cannot refuse the column: it does not know the topics, and others than these pass over it.
        if found is not None and version.type != pa.int64():
            raise SinkSchemaError(
                f"version attribute type must be a long, not {version.type}: it becomes the header {found} of topic {topic}"
            )
        return found

    def versions(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array] | tuple[None, None]:
        """Of rows that name their topics: the column of versions, and which of them are written, null ones included.

        None where that is none. Raises as `header`.
        """
        columns = {name.lower(): batch.column(index) for index, name in enumerate(batch.schema.names)}
        if not self._options.by_topic or "version" not in columns:
            return None, None
        topics, version = columns["topic"], columns["version"]
        names = [name for name in pc.unique(topics).to_pylist() if name is not None and self.header(name, version)]
        return (version, pc.is_in(topics, pa.array(names, topics.type))) if names else (None, None)

    def _own_header(self, topic: str) -> str:
        if topic not in self._own:
            self._own[topic] = own_header(self._options, topic)
        return self._own[topic]


def refuse_versions(options: SinkOptions, topic: str, own: str) -> None:
    """Raises ConfigError where a batch write's versions would compete in the topic: each write begins again at 0."""
    if own == options.version_header:
        raise ConfigError(
            VERSION_HEADER,
            f"topic {topic} is compacted by it, and a batch write has no number that grows from write to write",
            "give the rows a column version instead, or write a stream",
        )
