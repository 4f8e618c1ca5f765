"""A ConfigDef as Connect's validate JSON and as a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .configdef import ConfigDef
from .keys import ConfigKey, ConfigValue
from .parsing import shown


def definition_json(key: ConfigKey) -> dict[str, Any]:
    """`ConfigKeyInfo` of Connect's REST."""
    return {
        "name": key.name,
        "type": key.type.value,
        "required": key.required,
        "default_value": shown(key, None if key.required else key.default),
        "importance": key.importance.value,
        "documentation": key.documentation,
        "group": key.group,
        "order": key.order,
        "width": key.width.value,
        "display_name": key.display_name,
        "dependents": list(key.dependents),
    }


def validation_json(name: str, definition: ConfigDef, values: Sequence[ConfigValue]) -> dict[str, Any]:
    """`ConfigInfos` of Connect's REST: every setting with its definition, value and errors."""
    configs = []
    for value in values:
        key = definition.keys.get(value.name)
        configs.append(
            {
                "definition": None if key is None else definition_json(key),
                "value": {
                    "name": value.name,
                    "value": value.value if key is None else shown(key, value.value),
                    "recommended_values": [
                        v if isinstance(v, str) else str(v) for v in ([] if key is None else value.recommended_values)
                    ],
                    "errors": value.errors,
                    "visible": value.visible,
                },
            }
        )
    return {
        "name": name,
        "error_count": sum(len(value.errors) for value in values),
        "groups": definition.groups(),
        "configs": configs,
    }


def markdown(definition: ConfigDef) -> str:
    """The table of the documents: name, type, default, valid values, importance, meaning."""
    lines = ["| name | type | default | valid values | importance | meaning |", "|---|---|---|---|---|---|"]
    for key in definition.keys.values():
        if key.internal:
            continue
        default = "required" if key.required else _default(key)
        valid = "" if key.validator is None else str(key.validator).replace("|", "\\|")
        lines.append(
            f"| `{key.name}` | {key.type.value.lower()} | {default} | {valid} | {key.importance.value.lower()} "
            f"| {key.documentation.replace('|', chr(92) + '|')} |"
        )
    return "\n".join(lines) + "\n"


def _default(key: ConfigKey) -> str:
    text = shown(key, key.default)
    return "null" if text is None else f"`{text}`" if text else '`""`'
