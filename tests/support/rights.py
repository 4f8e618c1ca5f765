"""The table of rights in the documents, and users who have exactly some of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

#: tests/integration/test_rights.py proves these,
CLIENTS = ("consumer", "producer", "transactional producer", "creator", "controller")
#: and test_rights_of_parts.py these.
PARTS = ("spark source", "spark sink", "exactly-once spark sink", "connect worker", "compactor", "status", "doctor")
#: The password of the user whose rights are tried; no error says it.
SECRET = "s3cret-of-the-app"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
_ROW = re.compile(r"^\| ([a-z -]+) \| (topic|group|cluster|transactional id) \| `([^`]+)` \| (\w+) \| .* \|$", re.M)
_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.BROKER,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
}


class Right(NamedTuple):
    """One row of the table. name: as written, with TOPIC, GROUP and so on; PREFIX* stands for all that begin with it."""

    role: str
    resource: str
    name: str
    operation: str

    def on(self, names: dict[str, str]) -> str:
        """The resource's own name."""
        found = self.name
        for placeholder, name in names.items():
            found = found.replace(placeholder, name)
        return found

    def __str__(self) -> str:
        return f"{self.role}: {self.operation} on {self.resource} {self.name}"


def rights() -> list[Right]:
    """Every row of the table in docs/security.md."""
    return [Right(*row) for row in _ROW.findall(PAGE.read_text(encoding="utf-8"))]


def grant_exactly(admin: AdminClient, user: str, granted: list[Right], names: dict[str, str]) -> None:
    """Take all rights of `user` away and give these; returns when the broker goes by them."""
    mine = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY
    )
    for future in admin.delete_acls([mine]).values():
        future.result(120)
    wanted = grant(admin, user, granted, names)

    def known() -> set[tuple[ResourceType, str, AclOperation]]:
        found = admin.describe_acls(mine).result(120)
        prefixed = ResourcePatternType.PREFIXED
        return {
            (a.restype, f"{a.name}*" if a.resource_pattern_type == prefixed else a.name, a.operation) for a in found
        }

    Retrying(stop=stop_after_delay(20), wait=wait_fixed(0.02), retry=retry_if_result(lambda found: found != wanted))(
        known
    )


def grant(
    admin: AdminClient, user: str, granted: list[Right], names: dict[str, str]
) -> set[tuple[ResourceType, str, AclOperation]]:
    """Give `user` these rights, too, and return them; the broker goes by them soon."""
    wanted = {
        (_TYPES[r.resource], r.on(names), AclOperation[re.sub(r"(?<!^)(?=[A-Z])", "_", r.operation).upper()])
        for r in granted
    }
    bindings = [
        AclBinding(
            kind,
            name.removesuffix("*"),
            ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for kind, name, operation in wanted
    ]
    if bindings:
        for created in admin.create_acls(bindings).values():
            created.result(120)
    return wanted
