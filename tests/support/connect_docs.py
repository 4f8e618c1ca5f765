"""The tables of docs/connect.md, made from the definitions in the code.

make docs
"""

from __future__ import annotations

import re
from pathlib import Path

from keyorder.connector.connect.config.configdef import ConfigDef
from keyorder.connector.connect.config.rendering import markdown
from keyorder.connector.connect.runtime.plugins import Plugins
from keyorder.connector.connect.runtime.settings import (
    connector_definition,
    distributed_definition,
    standalone_definition,
)
from support.generated import main

PAGE = Path(__file__).parents[2] / "docs" / "connect.md"
_TABLE = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def _without(definition: ConfigDef, other: ConfigDef) -> ConfigDef:
    rest = ConfigDef()
    rest.keys = {name: key for name, key in definition.keys.items() if name not in other.keys}
    return rest


def definition(name: str) -> ConfigDef:
    """What a table of that name shows."""
    special = {
        "standalone": standalone_definition,
        "distributed": lambda: _without(distributed_definition(), standalone_definition()),
        "sink": lambda: connector_definition("sink"),
        "source": lambda: _without(connector_definition("source"), connector_definition("sink")),
    }
    return special[name]() if name in special else Plugins().connector(name).config()


def page(text: str) -> str:
    """The page with every table as the code has it."""
    return _TABLE.sub(lambda m: f"<!-- table: {m[1]} -->\n{markdown(definition(m[1]))}<!-- end -->", text)


if __name__ == "__main__":
    main(PAGE, page)
