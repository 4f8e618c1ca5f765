"""Whether a connector's configuration may be stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import NoneType
from typing import Any

from ...api.errors import BadRequestError, NotFoundError
from ...api.java import BLANKS
from ...config.providers import Resolver
from ..plugins import Plugins
from ..validation import validate


def checked(
    plugins: Plugins, settings: Mapping[str, str], resolver: Resolver, name: str, config: Mapping[str, Any]
) -> dict[str, str]:
    """A configuration that may be stored, its values as text. settings: the worker's.

    Raises BadRequestError with every error of it.
    """
    if not isinstance(config, Mapping) or not config:
        raise BadRequestError('"config" must be an object of settings')
    name = name.strip(BLANKS)
    if not name or "/" in name:
        raise BadRequestError(f"{name!r} is no name for a connector: it may not be empty nor hold a slash")
    if any(not isinstance(v, (str, int, float, bool, NoneType)) for v in config.values()):
        raise BadRequestError("settings are text, numbers or true and false")
    if config.get("name", name) is None:
        config = {**config, "name": name}
    nulls = sorted(k for k, v in config.items() if v is None)
    if nulls:
        raise BadRequestError(f"{', '.join(nulls)}: null is no value: leave the setting out")
    made = {k: v if isinstance(v, str) else json.dumps(v) for k, v in config.items()}
    if made.setdefault("name", name) != name:
        raise BadRequestError(f"Connector name configuration ({made['name']}) doesn't match connector name ({name})")
    if not made.get("connector.class"):
        raise BadRequestError(f"Connector config {{name={name}}} contains no connector type")
    if f"connect-{name}" == settings.get("group.id"):
        raise BadRequestError(f"Consumer group for sink connector {name} matches the group.id of the workers")
    try:
        kind = plugins.connector(made["connector.class"])
        answer = validate(plugins, settings, kind, resolver.resolve(made))
    except NotFoundError as error:
        raise BadRequestError(str(error)) from error
    errors = [f"{c['value']['name']}: {resolver.redact(e)}" for c in answer["configs"] for e in c["value"]["errors"]]
    if errors:
        raise BadRequestError(
            f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n"
            + "\n".join(errors)
        )
    return made
