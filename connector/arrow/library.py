"""The C library inside confluent-kafka's wheel: its functions by address, and the C handle behind a Python client.

The wheel carries librdkafka with its public symbols exported. The structures that are read here (`rd_kafka_message_t`,
`rd_kafka_vu_t`) are part of its public ABI and have been the same throughout version 2; anything newer, an unknown
binding, or a platform whose symbols cannot be found is left to the ordinary consume() and produce(), said once.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import re
from collections.abc import Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import cimpl

from ...partitioner.errors import ConfigError
from ..settings import boolean

OPTION = "keyorder.arrow.native"
_VARIABLE = "KEYORDER_ARROW_NATIVE"
_LOGGER = logging.getLogger("keyorder.arrow")
_LIBRARY_FROM, _LIBRARY_BELOW = 0x020F0000, 0x03000000
_BINDING_FROM, _BINDING_BELOW = (2, 15), (3, 0)
_NAME = re.compile(rb"#(consumer|producer)-\d+$")

_WORD, _TEXT, _INT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_ERROR_CALLBACK = ctypes.CFUNCTYPE(None, _WORD, _INT, _TEXT, _WORD)
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_version": (_INT, []),
    "rd_kafka_name": (_TEXT, [_WORD]),
    "rd_kafka_opaque": (_WORD, [_WORD]),
    "rd_kafka_conf": (_WORD, [_WORD]),
    "rd_kafka_conf_get": (_INT, [_WORD, _TEXT, _WORD, _WORD]),
    "rd_kafka_conf_set_error_cb": (None, [_WORD, _WORD]),
    "rd_kafka_topic_new": (_WORD, [_WORD, _TEXT, _WORD]),
    "rd_kafka_topic_destroy": (None, [_WORD]),
    "rd_kafka_topic_name": (_TEXT, [_WORD]),
    "rd_kafka_queue_new": (_WORD, [_WORD]),
    "rd_kafka_queue_get_partition": (_WORD, [_WORD, _TEXT, ctypes.c_int32]),
    "rd_kafka_queue_forward": (None, [_WORD, _WORD]),
    "rd_kafka_queue_destroy": (None, [_WORD]),
    "rd_kafka_consume_batch_queue": (ctypes.c_ssize_t, [_WORD, _INT, _WORD, ctypes.c_size_t]),
    "rd_kafka_message_errstr": (_TEXT, [_WORD]),
    "rd_kafka_message_destroy": (None, [_WORD]),
    "rd_kafka_message_timestamp": (ctypes.c_int64, [_WORD, _WORD]),
    "rd_kafka_message_headers": (_INT, [_WORD, _WORD]),
    "rd_kafka_header_cnt": (ctypes.c_size_t, [_WORD]),
    "rd_kafka_header_get_all": (_INT, [_WORD, ctypes.c_size_t, _WORD, _WORD, _WORD]),
    "rd_kafka_produce_batch": (_INT, [_WORD, ctypes.c_int32, _INT, _WORD, _INT]),
    "rd_kafka_headers_new": (_WORD, [ctypes.c_size_t]),
    "rd_kafka_header_add": (_INT, [_WORD, _WORD, ctypes.c_ssize_t, _WORD, ctypes.c_ssize_t]),
    "rd_kafka_headers_destroy": (None, [_WORD]),
    "rd_kafka_produceva": (_WORD, [_WORD, _WORD, ctypes.c_size_t]),
    "rd_kafka_error_code": (_INT, [_WORD]),
    "rd_kafka_error_destroy": (None, [_WORD]),
    "rd_kafka_conf_set_dr_msg_cb": (None, [_WORD, _WORD]),
}


class Library:
    """The functions of one loaded librdkafka. Attributes are ctypes functions; `address` is what compiled code takes."""

    def __init__(self, path: str) -> None:
        # The symbols are looked up in what the binding itself has loaded: there is no second copy.
        self._library = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, f"rd_kafka_{name}")

    def address(self, name: str) -> int:
        """Where a function lies."""
        return ctypes.cast(getattr(self, name), ctypes.c_void_p).value or 0

    def handle(self, client: object) -> int | None:
        """The `rd_kafka_t*` of a confluent_kafka client: the first field of the object.

        None unless the library says that this handle belongs to this very object.
        """
        pointer = ctypes.c_void_p.from_address(id(client) + object.__basicsize__).value
        if not pointer or pointer % 8:
            return None
        if self.opaque(pointer) != id(client) or not _NAME.search(self.name(pointer) or b""):
            return None
        return pointer


class Callback:
    """One callback of a live client, as its configuration holds it: it can be read and replaced."""

    def __init__(self, library: Library, handle: int, name: str) -> None:
        self._name = name
        self._get, self._set = library.conf_get, getattr(library, f"conf_set_{name}")
        self._conf = library.conf(handle)

    @property
    def address(self) -> int | None:
        """The function, None without one."""
        text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
        found = self._get(self._conf, self._name.encode(), ctypes.addressof(text), ctypes.addressof(size)) == 0
        return int(text.value, 16) if found and text.value else None

    def replace(self, address: int | None) -> None:
        """Put another function in its place."""
        self._set(self._conf, address)


class ErrorSink:
    """Takes the errors that a bare C call would hand to the binding's error callback, which has to run inside a poll().

    A deleted topic, for one, is told on the queue of its partitions. `with sink:` puts a callback of its own in place
    of the binding's for the duration of a call; `taken` returns what came.
    """

    def __init__(self, library: Library, handle: int) -> None:
        self._errors: list[tuple[int, str]] = []
        self._function = _ERROR_CALLBACK(self._told)
        self._ours = ctypes.cast(self._function, ctypes.c_void_p).value
        self._callback = Callback(library, handle, "error_cb")
        self._theirs = self._callback.address
        with self:
            self.usable = self._callback.address == self._ours

    def __enter__(self) -> None:
        self._callback.replace(self._ours)

    def __exit__(self, *_: object) -> None:
        self._callback.replace(self._theirs)

    def taken(self) -> list[tuple[int, str]]:
        """(code, text) of each error since the last call."""
        errors, self._errors = self._errors, []
        return errors

    def _told(self, _: int, code: int, text: bytes | None, __: int) -> None:
        self._errors.append((code, (text or b"").decode("utf-8", "replace")))


@functools.lru_cache(maxsize=1)
def _found() -> Library | str:
    """The library, or why it cannot be used."""
    binding = tuple(int(part) for part in re.findall(r"\d+", str(confluent_kafka.__version__))[:2])
    if not _BINDING_FROM <= binding < _BINDING_BELOW:
        return f"confluent-kafka {confluent_kafka.__version__} is not one of the versions whose objects are known"
    try:
        library = Library(cimpl.__file__)
        version = library.version()
    except (OSError, AttributeError) as error:
        return f"the functions of librdkafka cannot be found ({error})"
    if not _LIBRARY_FROM <= version < _LIBRARY_BELOW:
        return f"librdkafka {version:#x} is not one of the versions whose structures are known"
    return library


@functools.lru_cache(maxsize=1)
def _compiled() -> str | None:
    """Why compiled functions cannot be used, or None."""
    try:
        from . import columns  # noqa: F401
    except Exception as error:
        return f"numba cannot be used ({type(error).__name__}: {error})"
    return None


def native(config: Mapping[str, Any]) -> Library | None:
    """The library, unless `keyorder.arrow.native` or KEYORDER_ARROW_NATIVE is false, or it cannot be used here.

    Raises ConfigError for a value that is neither true nor false.
    """
    if not boolean(config, OPTION, True):
        return None
    try:
        wanted = boolean(os.environ, _VARIABLE, True)
    except ConfigError as error:
        raise ConfigError(_VARIABLE, "its value is neither true nor false", "write true or false") from error
    if not wanted:
        return None
    found = _found()
    reason = found if isinstance(found, str) else _compiled()
    if reason is not None:
        say_once(reason)
        return None
    assert isinstance(found, Library)
    return found


@functools.lru_cache(maxsize=8)
def say_once(reason: str) -> None:
    """Tell that the slower way is taken."""
    _LOGGER.warning("Arrow batches go record by record through the Python client: %s", reason)
