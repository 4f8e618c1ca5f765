"""Config providers: `${provider:path:key}` is stored as it stands and resolved in the worker, never echoed (KIP-297).

`env` reads the environment, `file` a properties file, `directory` one file per key.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

from ....partitioner.errors import ConfigError
from ...cli.connecting import is_secret, read_properties
from ..api.java import BLANKS
from .keys import HIDDEN

# The shortest line, of a secret of several, that is hidden by itself, in characters.
_TELLING = 8
_PLACEHOLDER = re.compile(r"\$\{([^:}]+):(?:([^:}]*):)?([^:}]*)\}")


class ConfigProvider(ABC):
    """Gives the values of one kind of placeholder."""

    def __init__(self, params: Mapping[str, str]) -> None:
        self._params = params

    @abstractmethod
    def get(self, path: str, key: str) -> str:
        """The value. Raises ConfigError."""

    def _allowed(self, path: str) -> Path:
        """The path, if `allowed.paths` lets it; links are followed before the comparison."""
        if "\0" in path:
            raise ConfigError("allowed.paths", "a path holds a NUL", "name a file")
        wanted = Path(path).resolve()
        allowed = [Path(p.strip()).resolve() for p in self._params.get("allowed.paths", "").split(",") if p.strip()]
        if allowed and not any(wanted == p or p in wanted.parents for p in allowed):
            raise ConfigError("allowed.paths", f"{path} lies outside", "name a file below one of the allowed paths")
        return wanted


class EnvVarConfigProvider(ConfigProvider):
    """`${env:NAME}`; `allowlist.pattern` says which names may be read."""

    def get(self, path: str, key: str) -> str:
        pattern = self._params.get("allowlist.pattern", ".*")
        try:
            allowed = re.fullmatch(pattern, key)
        except (re.error, OverflowError, RecursionError):
            raise ConfigError("allowlist.pattern", f"{pattern!r} is no pattern", "correct it") from None
        if not allowed:
            raise ConfigError("allowlist.pattern", f"{key} does not match", "use a variable that is allowed")
        if key not in os.environ:
            raise ConfigError(f"${{env:{key}}}", "the variable is not set", "set it where the worker starts")
        return os.environ[key]


class FileConfigProvider(ConfigProvider):
    """`${file:/path/of.properties:key}`; `allowed.paths` bounds what may be read."""

    def get(self, path: str, key: str) -> str:
        try:
            found = read_properties(self._allowed(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"${{file:{path}:{key}}}", f"cannot be read ({type(error).__name__})", "check it"
            ) from None
        if key not in found:
            raise ConfigError(f"${{file:{path}:{key}}}", "the file has no such key", "add it")
        return found[key]


class DirectoryConfigProvider(ConfigProvider):
    """`${directory:/path:file}`: the whole text of a file, as secrets are mounted in containers."""

    def get(self, path: str, key: str) -> str:
        try:
            if Path(key).name != key:
                raise OSError
            return self._allowed(str(Path(path) / key)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"${{directory:{path}:{key}}}", f"cannot be read ({type(error).__name__})", "check it"
            ) from None


PROVIDERS: dict[str, type[ConfigProvider]] = {
    kind.__name__: kind for kind in (EnvVarConfigProvider, FileConfigProvider, DirectoryConfigProvider)
}


def forms(value: str) -> tuple[str, str]:
    """A value as it was read, and as settings have it, which are trimmed."""
    return value, value.strip(BLANKS)


def _lines(value: str) -> Iterator[str]:
    """The lines of a value of several, which a group of exceptions shows indented. What frames a key tells nothing."""
    lines = [line.strip(BLANKS) for line in value.splitlines()]
    return (line for line in lines if len(lines) > 1 and len(line) >= _TELLING and not line.startswith("-----"))


def _quoted(value: str) -> Iterator[str]:
    """A value inside of what `repr`, JSON and URLs make of a text. That text's own quotes decide which of them are escaped."""
    for shown in (repr('"' + value)[2:-1], repr(('"' + value).encode(errors="replace"))[3:-1]):
        yield from (shown, shown.replace("\\'", "'"))
    for shown in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield from (shown, shown.replace("/", "\\/"))  # as some encoders have it
    for safe in ("/", ""):
        yield from (quote(value, safe, errors="replace"), quote_plus(value, safe, errors="replace"))


def may_be_secret(value: str) -> bool:
    """Nothing shorter is a secret, and hiding it would blot out half of every text."""
    return len(value) > 3


def shown_trace(error: BaseException, redact: Callable[[str], str]) -> str:
    """The traceback of an error as it may be shown."""
    return redact("".join(traceback.format_exception(type(error), error, error.__traceback__)))


class Resolver:
    """Resolves placeholders, and remembers what must not be shown."""

    def __init__(self, worker_config: Mapping[str, str]) -> None:
        self._providers: dict[str, ConfigProvider] = {}
        self._hidden: set[str] = set()
        self._secrets: set[str] = set()
        for name in [n.strip() for n in worker_config.get("config.providers", "").split(",") if n.strip()]:
            prefix = f"config.providers.{name}."
            kind = worker_config.get(f"{prefix}class", "").rpartition(".")[2]
            if kind not in PROVIDERS:
                raise ConfigError(f"{prefix}class", f"{kind!r} is no provider", f"use one of {', '.join(PROVIDERS)}")
            start = f"{prefix}param."
            params = {k.removeprefix(start): v for k, v in worker_config.items() if k.startswith(start)}
            self._providers[name] = PROVIDERS[kind](params)

    def resolve(self, config: Mapping[str, str]) -> dict[str, str]:
        """The settings with every placeholder of a configured provider replaced. Raises ConfigError."""
        return {name: self._one(str(value)) for name, value in config.items()}

    def keep_secret(self, config: Mapping[str, str]) -> None:
        """Remember values whose names say that they are secrets, so that `redact` hides them."""
        for name, value in config.items():
            if is_secret(name) and not _PLACEHOLDER.search(value):
                self._hide(value)

    def redact(self, text: str) -> str:
        """Text that may be shown: every value that came from a provider is hidden."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    def trace(self, error: BaseException) -> str:
        """The traceback of an error as it may be shown."""
        return shown_trace(error, self.redact)

    def _hide(self, value: str) -> None:
        """Have `redact` hide a value in each of its forms. Those of a long file take seconds, and each task resolves it anew."""
        if value in self._hidden:
            return
        shown = {*filter(may_be_secret, forms(value)), *_lines(value)}
        for _ in range(2):  # a text that quotes it is often quoted itself, as in str(KeyError(...))
            shown |= {quoted for text in shown for quoted in _quoted(text)}
        self._secrets |= shown
        self._hidden.add(value)

    def _one(self, text: str) -> str:
        def replace(match: re.Match[str]) -> str:
            provider = self._providers.get(match[1])
            if provider is None:
                return match[0]
            value = provider.get(match[2] or "", match[3])
            self._hide(value)
            return value

        return _PLACEHOLDER.sub(replace, text)
