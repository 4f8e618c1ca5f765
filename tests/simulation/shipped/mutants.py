"""The shipped code with one guard taken out each: patches of its source, made while it is loaded.

Most are those of docs/conformance_spots.toml, by name; they are kept in step with the code there.
"""

from __future__ import annotations

from pathlib import Path

Patches = dict[str, list[tuple[str, str]]]
_ROOT = Path(__file__).resolve().parents[3]


def patches_of(name: str) -> Patches:
    """{file: [(old, new)]} of a mutant, files from the root of the repository."""
    import tomllib

    spots = tomllib.loads((_ROOT / "docs/conformance_spots.toml").read_text())
    spot = spots[name]
    found: Patches = {}
    for patch in (spot, *spot.get("more", ())):
        found.setdefault(patch["file"], []).append((patch["old"], patch["new"]))
    return found


def patched(source: str, path: str, patches: Patches) -> str:
    """The source of one module. Raises LookupError for a patch that does not fit."""
    for file, changes in patches.items():
        if path == str(_ROOT / file):
            for old, new in changes:
                if source.count(old) != 1:
                    raise LookupError(f"{file} does not have this once: {old}")
                source = source.replace(old, new)
    return source
