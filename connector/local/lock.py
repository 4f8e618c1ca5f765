"""Writes a lock file: `python -m keyorder.connector.local.lock <version>`. For maintainers.

Resolves Kafka's server with its runtime dependencies and the SLF4J binding that fits, fetches each jar
once, compares it with the SHA-1 that the repository publishes, and freezes path, SHA-256 and size.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import click
from jgo.maven import Dependency, MavenContext

from .repository import repository_url
from .versions import lock_path

SERVER = "org.apache.kafka:kafka_2.13"
SLF4J_API = ("org.slf4j", "slf4j-api")
BINDING = "org.slf4j:slf4j-simple"
# Bindings that come in through a dependency: two bindings on one class path are one too many.
OTHER_BINDINGS = {"logback-classic", "logback-core", "slf4j-reload4j", "slf4j-log4j12", "log4j-slf4j-impl"}


def resolve(version: str, cache: Path) -> list[Dependency]:
    """Every jar of the server's run-time class path, the binding included, sorted by coordinate."""
    context = MavenContext(repo_cache=cache, remote_repos={"main": repository_url()}, timeout=60)
    server = context.create_dependency(f"{SERVER}:{version}")
    found = [server, *_runtime(context, server)]
    api = next(each for each in found if (each.groupId, each.artifactId) == SLF4J_API)
    binding = context.create_dependency(f"{BINDING}:{api.version}")
    wanted = [each for each in found if each.artifactId not in OTHER_BINDINGS] + [binding]
    return sorted(wanted, key=lambda each: (each.groupId, each.artifactId))


def _runtime(context: MavenContext, server: Dependency) -> list[Dependency]:
    _, transitive = context.resolver.resolve([server])
    return [each for each in transitive if each.scope in ("compile", "runtime") and each.type == "jar"]


def entry(dependency: Dependency) -> dict[str, object]:
    """One jar as the lock file writes it."""
    artifact = dependency.artifact
    # jgo compares the download with the SHA-1 beside it and raises where they differ.
    content = Path(artifact.resolve()).read_bytes()
    return {
        "path": f"{artifact.component.path_prefix.as_posix()}/{artifact.filename}",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
    }


@click.command()
@click.argument("versions", nargs=-1, required=True)
def main(versions: tuple[str, ...]) -> None:
    """Freeze the jars of each Kafka version in a lock file beside this script."""
    for version in versions:
        with tempfile.TemporaryDirectory() as cache:
            jars = [entry(dependency) for dependency in resolve(version, Path(cache))]
        lock_path(version).write_text(json.dumps({"kafka": version, "jars": jars}, indent=1) + "\n", "utf-8")
        click.echo(f"{lock_path(version).name}: {len(jars)} jars", file=sys.stderr)


if __name__ == "__main__":
    main()
