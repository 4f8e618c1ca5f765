"""The offsets of connectors, read and changed: in a source's store, or in a sink's consumer group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...api.connector import Connector
from ...api.errors import BadRequestError
from ..offsets import canonical
from .group_offsets import GroupOffsets
from .views import Views


class OffsetOperations(Views):
    """What can be asked about offsets."""

    def offsets(self, name: str) -> dict[str, Any]:
        """The offsets of a connector."""
        config = self.config(name)
        if self._kind_word(config) == "sink":
            return {"offsets": self._group(config, name).read()}
        self._worker.offsets.refresh()
        pairs = self._worker.offsets.of(name)
        return {"offsets": [{"partition": partition, "offset": offset} for partition, offset in pairs]}

    def alter_offsets(self, name: str, offsets: Any) -> dict[str, str]:
        """PATCH offsets: only while STOPPED; refused where a key's order would break."""
        pairs = offset_pairs(offsets)

        def work() -> None:
            config = self._stopped_config(name)
            self.herder.leader.fence(name)
            self._alter(name, self._plugins.connector(config["connector.class"]), config, pairs)

        self._lead(work)
        return {"message": f"The offsets for this connector have been altered successfully ({len(pairs)} partitions)"}

    def reset_offsets(self, name: str) -> dict[str, str]:
        """DELETE offsets: all of them, so that the connector begins anew. Only while STOPPED."""

        def work() -> None:
            config = self._stopped_config(name)
            if self._kind_word(config) == "sink":
                self._group(config, name).reset()
                return
            self.herder.leader.fence(name)
            store = self._worker.offsets
            store.refresh()
            before = store.of(name)
            self._instance(config).alter_offsets(
                self._worker.resolver.resolve(config), before, [(partition, None) for partition, _ in before]
            )
            store.write(name, {canonical(partition): None for partition, _ in before})

        self._lead(work)
        return {"message": "The offsets for this connector have been reset successfully"}

    def _alter(
        self,
        name: str,
        kind: type[Connector],
        config: Mapping[str, str],
        pairs: Sequence[tuple[dict[str, Any], Any]],
        replace: bool = False,
    ) -> None:
        if kind.kind == "sink":
            self._group(config, name).alter(pairs, replace)
            return
        store = self._worker.offsets
        store.refresh()
        if replace:
            named = {canonical(partition) for partition, _ in pairs}
            pairs = [
                *pairs,
                *((partition, None) for partition, _ in store.of(name) if canonical(partition) not in named),
            ]
        self._instance(config).alter_offsets(self._worker.resolver.resolve(config), store.of(name), pairs)
        store.write(name, {canonical(partition): offset for partition, offset in pairs})

    def _stopped_config(self, name: str) -> dict[str, str]:
        config = self.herder.config_of(name)
        if not self.herder.stopped(name):
            raise BadRequestError(
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done "
                f"for the specified connector by issuing a PUT request to /connectors/{name}/stop"
            )
        return config

    def _instance(self, config: Mapping[str, str]) -> Any:
        return self._plugins.connector(config["connector.class"])()

    def _group(self, config: Mapping[str, str], name: str) -> GroupOffsets:
        resolved = self._worker.resolver.resolve(config)
        return GroupOffsets(self.herder.settings, resolved, name)


def offset_pairs(document: Any) -> list[tuple[dict[str, Any], Any]]:
    """[{"partition", "offset"}, ...] checked. Raises BadRequestError."""
    if not isinstance(document, list) or not document:
        raise BadRequestError("Partitions / offsets need to be provided for an alter offsets request")
    pairs = []
    for entry in document:
        if not isinstance(entry, dict) or not isinstance(entry.get("partition"), dict):
            raise BadRequestError('each of "offsets" needs an object "partition" and an "offset" (an object or null)')
        unknown = entry.keys() - {"partition", "offset"}
        if unknown:
            raise BadRequestError(f'each of "offsets" has "partition" and "offset", not {", ".join(sorted(unknown))}')
        if entry.get("offset") is not None and not isinstance(entry["offset"], dict):
            raise BadRequestError('"offset" must be an object or null')
        pairs.append((entry["partition"], entry.get("offset")))
    return pairs
