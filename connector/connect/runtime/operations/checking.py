"""Whether a connector's configuration may be stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...api.errors import BadRequestError, NotFoundError
from ..group.herder import Herder
from ..worker import exactly_once
from .views import Views


def checked(views: Views, herder: Herder, name: str, config: Mapping[str, Any]) -> dict[str, str]:
    """A configuration that may be stored, its values as text. Raises BadRequestError with every error of it."""
    if not isinstance(config, Mapping) or not config:
        raise BadRequestError('"config" must be an object of settings')
    if not name or name != name.strip() or "/" in name:
        raise BadRequestError(f"{name!r} is no name for a connector: it may not be empty nor hold a slash")
    if any(not isinstance(v, (str, int, float, bool)) for v in config.values() if v is not None):
        raise BadRequestError("settings are text, numbers or true and false")
    made = {k: v if isinstance(v, str) else json.dumps(v) for k, v in config.items() if v is not None}
    if made.setdefault("name", name) != name:
        raise BadRequestError(f"Connector name configuration ({made['name']}) doesn't match connector name ({name})")
    if not made.get("connector.class"):
        raise BadRequestError(f"Connector config {{name={name}}} contains no connector type")
    if f"connect-{name}" == herder.settings.get("group.id"):
        raise BadRequestError(f"Consumer group for sink connector {name} matches the group.id of the workers")
    try:
        answer = views.validate(made["connector.class"], made)
    except NotFoundError as error:
        raise BadRequestError(str(error)) from error
    errors = [f"{c['value']['name']}: {e}" for c in answer["configs"] for e in c["value"]["errors"]]
    kind = herder.worker.plugins.connector(made["connector.class"])
    if made.get("exactly.once.support") == "required" and not exactly_once(
        herder.parsed, kind, herder.worker.resolver.resolve(made)
    ):
        errors.append(
            "exactly.once.support: it is required, but the worker's exactly.once.source.support is not enabled, or the "
            "connector cannot do it with these settings"
        )
    if errors:
        raise BadRequestError(
            f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n"
            + "\n".join(errors)
        )
    return made
