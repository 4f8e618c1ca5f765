"""How a command reaches the cluster: Kafka's own flags, a properties file, and passwords that are never shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ...partitioner.errors import ConfigError
from ..config import connection_of
from ..metadata import cluster_metadata
from ..refusals import HOSTS_WITHIN, ClusterAdmin
from .output import echo_wrapped
from .seconds import Seconds

Command = TypeVar("Command", bound=Callable[..., Any])

# Seconds that the client library's admin client lets one request take at most.
_ONE_REQUEST = 3600.0
_SECRET = ("password", "secret", "jaas", ".pem", "keystore.key", "token", "oauthbearer.config")
_JAAS_ENTRY = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# What Java's clients call otherwise: the name here, or what to give instead.
_JAVA_ONLY = {
    "ssl.truststore.location": "give ssl.ca.location, a file of PEM certificates",
    "ssl.truststore.password": "leave it out: PEM certificates need none",
    "ssl.truststore.certificates": "give ssl.ca.pem",
    "sasl.login.callback.handler.class": "use a mechanism that librdkafka knows by itself",
}


@dataclass(frozen=True)
class Connection:
    """Where the cluster is and how to log in. timeout: what the user allows the command, in seconds."""

    config: Mapping[str, str]
    timeout: float

    @property
    def bootstrap_servers(self) -> str:
        """The addresses, as given."""
        return self.config["bootstrap.servers"]

    @property
    def request_timeout(self) -> float:
        """As much of `timeout` as one request of an admin client may take, in seconds."""
        return min(self.timeout, _ONE_REQUEST)

    def admin_client(self) -> AdminClient:
        """The client library's admin client. Raises ConfigError for a setting that the library refuses."""
        try:
            return ClusterAdmin(self.config)
        except KafkaException as raised:
            text = str(raised.args[0].str())
            # The library may quote what it does not like.
            if any(value and value in text for name, value in self.config.items() if is_secret(name)):
                text = "a setting was refused"
            raise ConfigError("--command-config or --command-property", text, "correct that setting") from None

    def reach(self, patient: bool = False) -> AdminClient:
        """An admin client to which a broker has answered. patient: wait for a host that has no address yet, too.

        Raises ConfigError, BrokerUnreachableError after `timeout` seconds, HostUnknownError, TlsError, NotAuthorizedError.
        """
        admin = self.admin_client()
        cluster_metadata(admin, self.bootstrap_servers, min(self.timeout, 30.0), None if patient else HOSTS_WITHIN)
        return admin


def connection_options(timeout: float) -> Callable[[Command], Command]:
    """Adds Kafka's connection flags to a command, which takes them as its argument `connection`.

    timeout: the default of --timeout, in seconds.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(
            *,
            bootstrap_server: str,
            command_config: Path | None,
            command_property: Iterable[str],
            timeout: float,
            **others: Any,
        ) -> Any:
            for name in [others.get("topic"), *(others.get("topics") or ())]:
                _see_name(name)
            if not bootstrap_server.replace(",", " ").strip():
                raise click.UsageError("--bootstrap-server is empty: give host:port.")
            _see_text({"bootstrap_server": bootstrap_server, "command_property": command_property, **others})
            config = _settings(bootstrap_server, command_config, pairs(command_property, "--command-property"))
            return command(connection=Connection(config, timeout), **others)

        options = (
            click.option(
                "--bootstrap-server",
                envvar="KEYORDER_BOOTSTRAP_SERVERS",
                required=True,
                help="host:port of a broker, more joined by commas. [env: KEYORDER_BOOTSTRAP_SERVERS]",
            ),
            click.option(
                "--command-config",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="A properties file with security settings, as Kafka's own tools take it.",
            ),
            click.option(
                "--command-property",
                multiple=True,
                metavar="NAME=VALUE",
                help="One such setting; overrides the file. Others on this machine can see it: passwords belong in the file.",
            ),
            click.option(
                "--timeout",
                type=Seconds(),
                default=timeout,
                show_default=True,
                help="Seconds until the command gives up.",
            ),
        )
        decorated: Any = run
        for option in reversed(options):
            decorated = option(decorated)
        return cast(Command, decorated)

    return decorate


def pairs(words: Iterable[str], flag: str) -> dict[str, str]:
    """`name=value` words as a dict. Raises click.UsageError, which does not repeat the word: it may be a password."""
    found: dict[str, str] = {}
    for number, word in enumerate(words, 1):
        name, separator, value = word.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"{flag} number {number} is not of the form NAME=VALUE.")
        found[name.strip()] = value.strip()
    return found


def _see_name(topic: str | None) -> None:
    """Raises click.UsageError for a name that Kafka gives no topic: a broker would say so in its own terms."""
    if topic is not None and (topic in (".", "..") or not _TOPIC.fullmatch(topic)):
        raise click.UsageError(
            f"--topic: {topic[:60]!r} is no name of a topic. Give 1 to 249 letters (a-z, A-Z), digits, '.', '_' or '-'."
        )


def _see_text(given: Mapping[str, Any]) -> None:
    """Raises click.UsageError for a word that is not UTF-8: with a group of such a name the client library ends the process."""
    flags = {param.name: param.opts[0] for param in click.get_current_context().command.params}
    for name, value in given.items():
        for word in value if isinstance(value, tuple) else (value,):
            if isinstance(word, str) and not word.isascii() and any("\ud800" <= c <= "\udfff" for c in word):
                raise click.UsageError(f"{flags.get(name, name)} is not UTF-8: give text in this encoding.")


def is_secret(name: str) -> bool:
    """Whether the value of this setting must never be shown."""
    return any(part in name.lower() for part in _SECRET)


def read_properties(text: str) -> dict[str, str]:
    """A Java properties file: comments, continued lines and escapes included. Raises ConfigError for half a character.

    A mark of byte order before the text, which editors on Windows write, is no part of the first name.
    """
    found: dict[str, str] = {}
    lines = iter(
        re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))
    )  # not splitlines(): a password may hold what Unicode calls the end of a line
    for line in lines:
        logical = line.lstrip()
        if not logical or logical[0] in "#!":
            continue
        while (len(logical) - len(logical.rstrip("\\"))) % 2:
            logical = logical[:-1] + next(lines, "").lstrip()
        match = re.match(r"((?:[^\\=:\s]|\\.)*)\s*[=:]?\s*(.*)", logical, re.DOTALL)
        assert match is not None
        name, value = _unescape(match[1]), _unescape(match[2].rstrip())
        try:
            # Java writes a character above \uffff as the escapes of its two halves.
            name, value = (part.encode("utf-16", "surrogatepass").decode("utf-16") for part in (name, value))
        except UnicodeDecodeError:
            raise ConfigError(
                repr(name), "an escape in its line is half a character", "write both halves, or the character itself"
            ) from None
        found[name] = value
    return found


def _unescape(text: str) -> str:
    named = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}

    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else named.get(code, code)

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", one, text, flags=re.DOTALL)


def _settings(bootstrap_server: str, file: Path | None, properties: Mapping[str, str]) -> dict[str, str]:
    try:
        from_file = read_properties(file.read_text(encoding="utf-8")) if file is not None else {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("--command-config", f"{file} cannot be read ({type(error).__name__})", "check it") from None
    given = from_java({**from_file, **properties})
    connecting = connection_of(given)
    ignored = sorted(name for name in given if name not in connecting)
    if ignored:
        echo_wrapped(f"Ignored, since they do not concern the connection: {', '.join(ignored)}", err=True)
    settings = {name: value for name, value in given.items() if name in connecting}
    settings.setdefault("client.id", "keyorder-cli")
    settings["bootstrap.servers"] = bootstrap_server
    return settings


def from_java(given: Mapping[str, str]) -> dict[str, str]:
    """Settings as Java's tools spell them, in the client library's words. Raises ConfigError for those without any."""
    settings = dict(given)
    for name, fix in _JAVA_ONLY.items():
        if settings.get(name):
            raise ConfigError(name, "it is a setting of Java's clients alone", fix)
        settings.pop(name, None)
    jaas = settings.pop("sasl.jaas.config", None)
    if jaas is not None:
        entries = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _JAAS_ENTRY.findall(jaas)}
        if "username" not in entries or "password" not in entries:
            raise ConfigError(
                "sasl.jaas.config", "it names no username and password", "give sasl.username and sasl.password"
            )
        settings.setdefault("sasl.username", entries["username"])
        settings.setdefault("sasl.password", entries["password"])
    if settings.get("ssl.endpoint.identification.algorithm") == "":
        settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings
