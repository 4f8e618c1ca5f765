"""Source text of confluent-kafka's own with the import of its clients replaced: nothing else of it changes.

`from confluent_kafka import Producer` becomes `from stand_ins import Producer`, and `confluent_kafka.Producer` becomes
`stand_ins.Producer`. What the names stand for is decided when the text runs: see stand_ins.py.
"""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

REPLACED = frozenset(
    {
        "Producer",
        "Consumer",
        "SerializingProducer",
        "DeserializingConsumer",
        "AvroProducer",
        "AvroConsumer",
        "AIOProducer",
        "AIOConsumer",
    }
)
_LIBRARY = "confluent_kafka"


class _Imports(ast.NodeTransformer):
    def __init__(self) -> None:
        self.count = 0

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.stmt]:
        if node.level or (node.module or "").partition(".")[0] != _LIBRARY:
            return node
        ours = [name for name in node.names if name.name in REPLACED]
        theirs = [name for name in node.names if name.name not in REPLACED]
        if not ours:
            return node
        self.count += len(ours)
        replaced = ast.ImportFrom(module="stand_ins", names=ours, level=0)
        if not theirs:
            return replaced
        return [ast.ImportFrom(module=node.module, names=theirs, level=0), replaced]

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == _LIBRARY and node.attr in REPLACED:
            self.count += 1
            return ast.Attribute(value=_imported(), attr=node.attr, ctx=node.ctx)
        return self.generic_visit(node)


def _imported() -> ast.expr:
    return ast.parse("__import__('stand_ins')", mode="eval").body


def rewritten(source: str) -> tuple[str, int]:
    """The text with its imports replaced, and how many names that were."""
    imports = _Imports()
    tree = ast.fix_missing_locations(imports.visit(ast.parse(source)))
    return (ast.unparse(tree), imports.count) if imports.count else (source, 0)


def rewrite_folder(source: Path, target: Path) -> dict[Path, int]:
    """Copy a folder with every program in it rewritten. Where names were replaced, relative to it, and how many."""
    shutil.copytree(source, target)
    replaced = {}
    for path in sorted(target.rglob("*.py")):
        text, count = rewritten(path.read_text(encoding="utf-8"))
        if count:
            path.write_text(text, encoding="utf-8")
            replaced[path.relative_to(target)] = count
    return replaced
