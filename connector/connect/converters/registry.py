"""A client of a schema registry: the three calls of Confluent's REST that converters need."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import requests

from ..api.errors import ConnectError, DataError, RetriableError
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type

_TYPE = "application/vnd.schemaregistry.v1+json"
_TIMEOUT = 10.0
_LAST_ID = 2**32 - 1  # an id has four bytes in a record
T = TypeVar("T")


def registry_settings() -> ConfigDef:
    """The settings of every converter with a registry."""
    return (
        ConfigDef()
        .define("schema.registry.url", Type.STRING, None, Importance.HIGH, "Where the schema registry is.")
        .define(
            "schema.registry.basic.auth.user.info",
            Type.PASSWORD,
            None,
            Importance.MEDIUM,
            "user:password for the registry.",
        )
        .define("auto.register.schemas", Type.BOOLEAN, True, Importance.LOW, "Register schemas of written values.")
    )


class SchemaRegistry:
    """Schemas by id; ids by subject and schema. Answers never change, so each is asked for once."""

    def __init__(self, url: str, user_info: str | None = None) -> None:
        self._url = url.rstrip("/")
        user, _, password = (user_info or "").partition(":")
        self._auth = (user, password) if user_info else None
        self._lock = threading.Lock()
        self._schemas: dict[int, str] = {}

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> SchemaRegistry:
        """From a converter's settings, those of `registry_settings`."""
        password = options["schema.registry.basic.auth.user.info"]
        return cls(options["schema.registry.url"], password.value if password else None)

    def schema(self, number: int) -> str:
        """The schema text of an id.

        Raises DataError (there is none), RetriableError (no answer), ConnectError (the answer of something else).
        """
        with self._lock:
            if number not in self._schemas:
                path = f"/schemas/ids/{number}"
                found = self._call("GET", path).get("schema")
                if not isinstance(found, str):
                    raise self._no_registry("GET", path)
                self._schemas[number] = found
            return self._schemas[number]

    def read(self, number: int, make: Callable[[str], T]) -> T:
        """What `make` reads out of the schema text of an id. Raises as `schema`, and DataError for a text of any other kind."""
        text = self.schema(number)
        try:
            return make(text)
        except ConnectError:
            raise
        except Exception as error:  # whatever a text of another shape makes of Avro's library and of our readers
            raise DataError(f"schema {number} of the registry cannot be used ({type(error).__name__})") from error

    def register(self, subject: str, schema: str, create: bool = True, kind: str = "AVRO") -> int:
        """The id of a schema below a subject; registers it if `create`. kind: AVRO, JSON or PROTOBUF. Raises as `schema`."""
        path = f"/subjects/{quote(subject, safe='')}" + ("/versions" if create else "")
        body = {"schema": schema} if kind == "AVRO" else {"schema": schema, "schemaType": kind}
        found = self._call("POST", path, body).get("id")
        if type(found) is not int or not 0 <= found <= _LAST_ID:
            raise self._no_registry("POST", path)
        return found

    def _call(self, method: str, path: str, body: dict[str, str] | None = None) -> dict[str, object]:
        try:
            answer = requests.request(
                method, self._url + path, json=body, auth=self._auth, timeout=_TIMEOUT, headers={"Accept": _TYPE}
            )
        except requests.RequestException as error:
            raise RetriableError(f"the schema registry does not answer: {type(error).__name__}") from error
        if answer.status_code >= 500:
            raise RetriableError(f"the schema registry answered {answer.status_code} to {method} {path}")
        if answer.status_code >= 400:
            raise DataError(
                f"the schema registry answered {answer.status_code} to {method} {path}: {answer.text[:200]}"
            )
        try:
            found = json.loads(answer.content)
        except (ValueError, RecursionError) as error:
            raise self._no_registry(method, path) from error
        if not isinstance(found, dict):
            raise self._no_registry(method, path)
        return found

    @staticmethod
    def _no_registry(method: str, path: str) -> ConnectError:
        return ConnectError(
            f"the answer to {method} {path} is none of a schema registry: give schema.registry.url the address of one, "
            "and look at the proxies before it"
        )
