"""What a module of the product says of itself. Each is read and parsed once, however many tests ask."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """imports: level, module and names of each import; an `import x` has level -1 and no names. classes: inner ones, too."""

    docstring: str
    imports: tuple[tuple[int, str, tuple[str, ...]], ...]
    classes: frozenset[str]


@cache
def source_of(path: Path) -> Source:
    """Of a file of Python."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports: list[tuple[int, str, tuple[str, ...]]] = []
    classes: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(-1, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.level, node.module or "", tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.ClassDef):
            classes.add(node.name)
    return Source(ast.get_docstring(tree) or "", tuple(imports), frozenset(classes))
