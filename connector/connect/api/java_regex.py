"""Java's regular expressions and replacements, as far as Python's have the same; what they have not is refused by name."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from ....partitioner.records.control_records import INTERNAL_TOPICS

_POSIX = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": "\\x00-\\x7f", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9",
    "Punct": re.escape("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~\\"),
    "Space": " \\t\\n\\x0b\\f\\r", "XDigit": "0-9a-fA-F", "Blank": " \\t",
}  # fmt: skip
_DIGITS = "0123456789"
_PROPERTY = re.compile(r"\\([pP])\{(\w+)\}")
_CODE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,5})\}|u([0-9a-fA-F]{4})|0([0-3]?[0-7]{1,2}))")
_SETS = "dDwWsS"
_SAME = "tnrfa"
_EDGES = {"A": "\\A", "z": "\\Z", "Z": "(?=\\n?\\Z)", "b": "\\b", "B": "\\B"}
_OPEN = re.compile(
    r"\((?:\?(?:(?P<look>=|!|<=|<!|>)|<(?P<name>[A-Za-z][A-Za-z0-9]*)>|(?P<on>[ims]*)(?P<off>-[ims]+)?(?P<end>[:)])))?"
)
_REPEAT = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})(?P<how>[?+]?)")
_NAMED = re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}")
# What a pattern of topics does not mean, for the client library's topic.blacklist: Kafka's own topics, as in Java's
# consumers, and keyorder's.
NOT_MEANT = ",".join(f"^{name}$" for name in sorted(INTERNAL_TOPICS))
# Of names of topics.
_LEGAL = string.ascii_letters + string.digits + "._-"


class _Kind(Enum):
    ONE = auto()  # stands for one character
    OPEN = auto()
    CLOSE = auto()
    OR = auto()
    REPEAT = auto()
    EDGE = auto()
    FLAGS = auto()
    OTHER = auto()  # what only Python's and Java's expressions have


@dataclass(frozen=True)
class _Piece:
    kind: _Kind
    python: str
    java: str


def compiled(text: str) -> re.Pattern[str]:
    """A Java pattern. Raises ValueError that names what Python does not have, or has with another meaning."""
    try:
        return re.compile("".join(piece.python for piece in _pieces(text)), re.ASCII)
    except re.error as error:
        raise ValueError(str(error)) from None


def topics_pattern(text: str) -> str:
    """A Java pattern of whole names of topics, as the client library and the brokers match it (POSIX, RE2).

    Raises ValueError that names what they do not have.
    """
    compiled(text)
    pieces = list(_pieces(text))
    flags = "".join(piece.python for piece in pieces if piece.kind is _Kind.FLAGS)
    return f"^({''.join(_posix(piece, flags) for piece in pieces)})$"


def _posix(piece: _Piece, flags: str) -> str:
    if piece.kind is _Kind.ONE:
        one = re.compile(flags + piece.python, re.ASCII)
        found = "".join(c for c in _LEGAL if one.fullmatch(c))
        if found == _LEGAL:
            return "."
        return f"[{found or '!'}]"  # the hyphen, if any, is the last
    if piece.kind in (_Kind.CLOSE, _Kind.OR):
        return piece.python
    if piece.kind is _Kind.FLAGS:
        return ""
    if piece.kind is _Kind.OPEN and ":" in piece.python and piece.python != "(?:":
        raise ValueError(f"{piece.java} cannot be matched against topics: give flags at the start, or list the topics")
    if piece.kind is _Kind.OPEN:
        return "("
    if piece.kind is _Kind.REPEAT and not piece.python.endswith("+", 1):
        return piece.python[:-1] if piece.python.endswith("?", 1) else piece.python  # a whole name: lazy or not is one
    if piece.kind is _Kind.EDGE and piece.java[-1] in "^A$zZ":
        return "^" if piece.java[-1] in "^A" else "$"
    raise ValueError(f"{piece.java} cannot be matched against topics: write it otherwise, or list the topics")


def _pieces(text: str) -> Iterator[_Piece]:
    at = 0
    while at < len(text):
        start, c = at, text[at]
        if text.startswith("\\Q", at):
            quoted, at = _quoted(text, at)
            yield from (_Piece(_Kind.ONE, re.escape(each), each) for each in quoted)
            continue
        if c == "\\":
            kind, made, at = _escaped(text, at)
        elif c == "[":
            kind, (made, at) = _Kind.ONE, _class(text, at)
        elif c == "(":
            kind, made, at = _opened(text, at)
        elif c in "*+?{":
            found = _REPEAT.match(text, at)
            if found is None:
                raise ValueError(f"the {{ at position {at} begins no repetition: write \\{{ for one that is meant")
            kind, made, at = _Kind.REPEAT, found[0], found.end()
        else:
            kind = {")": _Kind.CLOSE, "|": _Kind.OR, "^": _Kind.EDGE, "$": _Kind.EDGE}.get(c, _Kind.ONE)
            made, at = (c if kind is not _Kind.ONE or c == "." else re.escape(c)), at + 1
        yield _Piece(kind, made, text[start:at])


def _quoted(text: str, at: int) -> tuple[str, int]:
    """What stands between \\Q and \\E, or the end."""
    end = text.find("\\E", at + 2)
    return (text[at + 2 :], len(text)) if end < 0 else (text[at + 2 : end], end + 2)


def _escaped(text: str, at: int) -> tuple[_Kind, str, int]:
    known = _character(text, at, False)
    if known is not None:
        return _Kind.ONE, *known
    letter = text[at + 1 : at + 2]
    if letter in _EDGES:
        return _Kind.EDGE, _EDGES[letter], at + 2
    if letter in "123456789" and text[at + 2 : at + 3] not in tuple(_DIGITS):
        return _Kind.OTHER, text[at : at + 2], at + 2
    raise ValueError(f"{text[at : at + 2]} has no equal here: write it otherwise")


def _character(text: str, at: int, in_class: bool) -> tuple[str, int] | None:
    """(what stands for one character, where it ends) of an escape; None if it is no such."""
    if at + 1 == len(text):
        raise ValueError("a backslash at the end stands for nothing")
    found = _PROPERTY.match(text, at)
    if found is not None:
        inner = _POSIX.get(found[2])
        if inner is None or (in_class and found[1] == "P"):
            raise ValueError(f"{found[0]} has no equal here: write the characters out")
        return inner if in_class else f"[{'^' if found[1] == 'P' else ''}{inner}]", found.end()
    found = _CODE.match(text, at)
    if found is not None:
        number = int(found[4], 8) if found[4] else int(found[1] or found[2] or found[3], 16)
        return re.escape(chr(number)), found.end()
    letter = text[at + 1]
    if letter in _SETS or letter in _SAME:
        return f"\\{letter}", at + 2
    if letter == "e":
        return "\\x1b", at + 2
    return None if letter.isalnum() and letter.isascii() else (re.escape(letter), at + 2)


def _class(text: str, at: int) -> tuple[str, int]:
    """A class in brackets, and where it ends."""
    i = at + 2 if text.startswith("[^", at) else at + 1
    made = text[at:i]
    first = True
    while i < len(text) and (first or text[i] != "]"):
        if text.startswith("\\Q", i):
            quoted, i = _quoted(text, i)
            made += re.escape(quoted)
        elif text[i] == "\\":
            known = _character(text, i, True)
            if known is None:
                raise ValueError(f"{text[i : i + 2]} has no equal in a class: write it otherwise")
            made, i = made + known[0], known[1]
        elif text[i] in "[]":
            raise ValueError(
                f"the {text[i]} inside of the class at position {at} has no equal here: write \\{text[i]}, or the characters out"
            )
        elif text.startswith(("&&", "--"), i):
            raise ValueError(f"{text[i : i + 2]} in a class has no equal here: write the characters out")
        else:
            made, i = made + (text[i] if text[i] == "-" else re.escape(text[i])), i + 1
        first = False
    if i >= len(text):
        raise ValueError(f"the class that begins at position {at} is not closed")
    return f"{made}]", i + 1


def _opened(text: str, at: int) -> tuple[_Kind, str, int]:
    found = _OPEN.match(text, at)
    if found is None or (found.end() == at + 1 and text.startswith("?", at + 1)):
        raise ValueError(f"{text[at : at + 3]} has no equal here: write it otherwise")
    if found["look"] is not None:
        return _Kind.OTHER, found[0], found.end()
    if found["name"] is not None:
        return _Kind.OPEN, f"(?P<{found['name']}>", found.end()
    if found["end"] == ")":
        if at or found["off"] or not found["on"]:  # Python has flags for the whole alone
            raise ValueError(f"{found[0]} has no equal here: give flags at the start, or as (?i:...)")
        return _Kind.FLAGS, found[0], found.end()
    return _Kind.OPEN, found[0], found.end()


class Replacement:
    """A replacement of Matcher.replaceFirst: $1, ${name}, and a backslash before what is meant as it stands.

    Raises ValueError for a group that the pattern does not have.
    """

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._parts: list[str | int] = []
        i = 0
        while i < len(text):
            if text[i] == "\\":
                if i + 1 == len(text):
                    raise ValueError("a backslash at the end stands for nothing")
                self._parts.append(text[i + 1])
                i += 2
            elif text[i] == "$":
                number, i = _group(pattern, text, i + 1)
                self._parts.append(number)
            else:
                self._parts.append(text[i])
                i += 1

    def of(self, match: re.Match[str]) -> str:
        """What stands for a match."""
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self._parts)


def _group(pattern: re.Pattern[str], text: str, at: int) -> tuple[int, int]:
    named = _NAMED.match(text, at)
    if named is not None:
        if named[1] not in pattern.groupindex:
            raise ValueError(f"there is no group {named[1]!r}")
        return pattern.groupindex[named[1]], named.end()
    if not text[at : at + 1] or text[at] not in _DIGITS:
        raise ValueError("a $ must be followed by the number or the {name} of a group")
    number, end = int(text[at]), at + 1
    if number > pattern.groups:
        raise ValueError(f"there is no group {number}")
    while text[end : end + 1] and text[end] in _DIGITS and number * 10 + int(text[end]) <= pattern.groups:
        number, end = number * 10 + int(text[end]), end + 1
    return number, end
