"""A client of a schema registry: the three calls of Confluent's REST that converters need."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import requests

from ..api.errors import DataError, RetriableError
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type

_TYPE = "application/vnd.schemaregistry.v1+json"
_TIMEOUT = 10.0


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
        """The schema text of an id. Raises DataError (there is none), RetriableError (no answer)."""
        with self._lock:
            if number not in self._schemas:
                self._schemas[number] = str(self._call("GET", f"/schemas/ids/{number}")["schema"])
            return self._schemas[number]

    def register(self, subject: str, schema: str, create: bool = True, kind: str = "AVRO") -> int:
        """The id of a schema below a subject; registers it if `create`. kind: AVRO, JSON or PROTOBUF. Raises as `schema`."""
        path = f"/subjects/{quote(subject, safe='')}" + ("/versions" if create else "")
        body = {"schema": schema} if kind == "AVRO" else {"schema": schema, "schemaType": kind}
        return int(str(self._call("POST", path, body)["id"]))

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
        found: dict[str, object] = answer.json()
        return found
