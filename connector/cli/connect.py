"""`keyorder connect`: workers of the Connect-style runtime, and what can be asked of a running one."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ...partitioner.errors import ConfigError, PeerError, UsageError
from .. import clock
from .connecting import read_properties
from .output import echo_wrapped, emit, emit_json, output_option
from .signals import stopped_by_signals

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_LOOK = 0.5

_DRY_RUN = click.option(
    "--dry-run",
    is_flag=True,
    help="Check all that a start would refuse: settings, connectors, the listener. Start nothing.",
)


class WorkerUnreachableError(PeerError):
    """No worker's REST answers at the URL."""

    retriable = True

    def __init__(self, url: str, detail: str) -> None:
        super().__init__(url, detail)
        self.url, self.detail = url, detail

    def __str__(self) -> str:
        return (
            f"no worker answers at {self.url} ({self.detail}): check that one runs there, or name another one by --url"
        )


@click.group(short_help="Run connectors between Kafka and other systems, in key order.")
def connect() -> None:
    """Run connectors between Kafka and other systems, each key in order."""


@connect.command()
@click.argument("worker", type=_FILE)
@click.argument("connectors", type=_FILE, nargs=-1)
@_DRY_RUN
@output_option
def standalone(worker: Path, connectors: Sequence[Path], dry_run: bool, output: str) -> None:
    """Run one worker by itself, until SIGTERM or SIGINT.

    WORKER and CONNECTORS are properties files (or, for connectors, JSON) as Kafka Connect's. Source offsets are kept in
    the file offset.storage.file.filename.
    """
    configs = [_connector(path) for path in connectors]

    def begin(process: Any) -> None:
        for config in configs:
            process.operations.put_config(config["name"], config)

    _run(worker, False, begin, dry_run, output, configs)


@connect.command()
@click.argument("worker", type=_FILE)
@_DRY_RUN
@output_option
def distributed(worker: Path, dry_run: bool, output: str) -> None:
    """Run one worker of a group, until SIGTERM or SIGINT. Connectors are made by its REST.

    WORKER is a properties file as Kafka Connect's.
    """
    _run(worker, True, lambda process: None, dry_run, output, [])


@connect.command(short_help="List the keys that a sink connector has parked.")
@click.option(
    "--url", default="http://localhost:8083", show_default=True, help="The address of any worker's REST interface."
)
@click.option("--token-file", type=_FILE, default=None, help="A file that holds the worker's rest.token.")
@click.option("--connector", required=True, help="The sink connector.")
@output_option
def parked(url: str, token_file: Path | None, connector: str, output: str) -> None:
    """List the keys that a sink connector has parked after a failed record."""
    document = _ask("GET", f"{url.rstrip('/')}/connectors/{connector}/parked", token_file)
    rows = [[e["topic"], e["key"], e["partition"], e["reason"]] for e in document["parked"]]
    emit(output, document, ("TOPIC", "KEY", "PARTITION", "REASON"), rows)


@connect.command()
@click.option(
    "--url", default="http://localhost:8083", show_default=True, help="The address of any worker's REST interface."
)
@click.option("--token-file", type=_FILE, default=None, help="A file that holds the worker's rest.token.")
@click.option("--connector", required=True, help="The sink connector.")
@click.option("--topic", required=True, help="The topic of the key.")
@click.option("--key", required=True, help="The key, as `parked` lists it.")
@click.option("--encoding", type=click.Choice(["base64"]), default=None, help="If the key is not text.")
@click.option(
    "--mode",
    type=click.Choice(["replay", "skip", "discard"]),
    default="replay",
    show_default=True,
    help="Deliver all parked records first, all but the failed one, or none.",
)
@click.option("--dry-run", is_flag=True, help="Say whether the key is parked, release nothing.")
@output_option
def release(
    url: str,
    token_file: Path | None,
    connector: str,
    topic: str,
    key: str,
    encoding: str | None,
    mode: str,
    dry_run: bool,
    output: str,
) -> None:
    """Resume the delivery of a parked key, in order."""
    base = f"{url.rstrip('/')}/connectors/{connector}/parked"
    if dry_run:
        listed = _ask("GET", base, token_file)["parked"]
        found = [e for e in listed if (e["topic"], e["key"]) == (topic, key)]
        if not found:
            raise UsageError(f"connector {connector!r} has not parked that key of topic {topic!r}")
        answer = found[0]
    else:
        body = {"topic": topic, "key": key, "mode": mode, **({} if encoding is None else {"encoding": encoding})}
        answer = _ask("POST", f"{base}/release", token_file, body)
    document = {**answer, "connector": connector, "mode": mode, "dry_run": dry_run}
    emit(output, document, ("TOPIC", "KEY", "MODE"), [[topic, key, mode]])


@connect.command("new-plugin", short_help="Create a Python package with a source, a sink and a test.")
@click.argument("name")
@click.option("--directory", type=click.Path(file_okay=False, path_type=Path), default=Path(), help="Where to make it.")
@output_option
def new_plugin(name: str, directory: Path, output: str) -> None:
    """Make a Python package with a source, a sink and a test that runs them on a real broker.

    NAME is the package's, such as my-lines.
    """
    from ..connect.plugin_template import write

    made = [str(path) for path in write(name, directory)]
    emit(output, {"name": name, "files": made}, ("FILE",), [[path] for path in made])


def _run(
    worker: Path, in_group: bool, begin: Callable[[Any], None], dry_run: bool, output: str, configs: Sequence[Any]
) -> None:
    # Loaded here: the libraries of the REST come with the extra `connect` alone.
    try:
        from ..connect.rest.process import WorkerProcess
        from ..connect.rest.security import listener_of
        from ..connect.rest.server import bind
        from ..connect.runtime.launch import Parts
        from ..connect.runtime.operations.checking import checked
    except ImportError as error:
        raise ConfigError("connect", f"{error.name} is not installed", "pip install 'keyorder[connect]'") from error
    settings = _properties(worker)
    if dry_run:
        parts = Parts.of(settings, in_group)
        listener = listener_of(parts.parsed)
        if listener is not None:
            bind(listener).close()
        for config in configs:
            checked(parts.plugins, parts.settings, parts.resolver, config["name"], config)
        _tell_checked(output, [config["name"] for config in configs])
        return
    logging.basicConfig(
        stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.WARNING
    )
    logging.getLogger("keyorder").setLevel(logging.INFO)
    logging.getLogger("keyorder.librdkafka").setLevel(logging.ERROR)
    _raise_descriptor_limit()
    with stopped_by_signals() as stop, WorkerProcess(settings, in_group) as process:
        begin(process)
        _tell(output, "started", url=process.url, worker=process.operations.herder.worker_id)
        while not stop.wait(_LOOK):
            process.check()
    _tell(output, "stopped")


def _tell_checked(output: str, names: Sequence[str]) -> None:
    if output == "json":
        emit_json({"dry_run": True, "connectors": list(names)})
    else:
        checked = ["the worker's settings", *(f"connector {name}" for name in names)]
        echo_wrapped(f"Checked, and nothing started: {', '.join(checked)}")


def _raise_descriptor_limit() -> None:
    """As many open files as this user may have, as a JVM does at its start: each task's clients need some dozens."""
    try:
        import resource
    except ImportError:  # no POSIX system: no such limit
        return
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):  # a hard limit that the system does not take as a soft one
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _tell(output: str, event: str, **facts: str) -> None:
    if output == "json":
        click.echo(json.dumps({"event": event, **facts, "at_ms": clock.wall_ms()}))
    else:
        click.echo("  ".join([event, *(f"{name}: {value}" for name, value in facts.items() if value)]))


def _properties(path: Path) -> dict[str, str]:
    try:
        return read_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"cannot be read ({type(error).__name__})", "check it") from None


def _connector(path: Path) -> dict[str, str]:
    """A connector's file: properties, or JSON as POST /connectors or PUT config take it."""
    if path.suffix == ".json":
        try:
            # Editors on Windows write a mark of byte order before the text.
            document = json.loads(path.read_text(encoding="utf-8-sig"))
            config = {"name": document["name"], **document["config"]} if "config" in document else document
            found = {str(k): v if isinstance(v, str) else json.dumps(v) for k, v in config.items()}
            json.dumps(found, ensure_ascii=False).encode()  # half a character is no text for anybody
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ConfigError(str(path), f"no connector's JSON ({type(error).__name__})", "check it") from None
    else:
        found = _properties(path)
    if not found.get("name"):
        raise ConfigError("name", f"{path} has none", "name the connector")
    return found


def _ask(method: str, url: str, token_file: Path | None, body: Any = None) -> dict[str, Any]:
    import requests

    headers = {}
    if token_file is not None:
        headers["Authorization"] = f"Bearer {_token(token_file)}"
    try:
        answer = requests.request(method, url, json=body, headers=headers, timeout=30)
        document: Any = json.loads(answer.content)
    except (requests.RequestException, ValueError, RecursionError) as error:
        raise WorkerUnreachableError(url, type(error).__name__) from error
    if not isinstance(document, dict):
        raise WorkerUnreachableError(url, "the answer is none of a Connect worker")
    if answer.status_code in (400, 404):
        raise UsageError(str(document.get("message")))
    if not answer.ok:
        raise PeerError(f"{answer.status_code}: {document.get('message')}")
    return document


def _token(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("--token-file", f"{path} cannot be read ({type(error).__name__})", "check it") from None
    if not (text.isascii() and text.isprintable()):
        raise ConfigError(
            "--token-file", f"{path} holds more than one line, or no ASCII", "put the token alone into it"
        )
    return text
