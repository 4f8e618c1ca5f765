"""Java's regular expressions and replacements, as far as Python's have the same; what they have not is refused by name."""

from __future__ import annotations

import re

_POSIX = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": "\\x00-\\x7f", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9",
    "Punct": re.escape("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~\\"),
    "Space": " \\t\\n\\x0b\\f\\r", "XDigit": "0-9a-fA-F", "Blank": " \\t",
}  # fmt: skip
_TOKEN = re.compile(
    r"\\Q(?P<quote>.*?)(?:\\E|$)|\\(?P<p>[pP])\{(?P<name>\w+)\}|\\(?P<escape>.)|\(\?<(?P<group>[A-Za-z]\w*)>|(?P<and>&&)",
    re.DOTALL,
)


def compiled(text: str) -> re.Pattern[str]:
    """A Java pattern. Raises ValueError that names what Python does not have."""
    made, at, in_class = "", 0, False
    for match in _TOKEN.finditer(text):
        between = text[at : match.start()]
        in_class = _in_class(between, in_class)
        made += between
        made += _translated(match, in_class)
        at = match.end()
    made += text[at:]
    try:
        return re.compile(made, re.ASCII)
    except re.error as error:
        raise ValueError(str(error)) from None


def _in_class(text: str, inside: bool) -> bool:
    for c in text:
        inside = (inside or c == "[") and c != "]"
    return inside


def _translated(match: re.Match[str], in_class: bool) -> str:
    if match["quote"] is not None:
        return re.escape(match["quote"])
    if match["p"] is not None:
        inner = _POSIX.get(match["name"])
        if inner is None or (in_class and match["p"] == "P"):
            raise ValueError(f"{match[0]} has no equal here: write the characters out")
        return inner if in_class else f"[{'^' if match['p'] == 'P' else ''}{inner}]"
    if match["group"] is not None:
        return f"(?P<{match['group']}>"
    if match["and"] is not None:
        if in_class:
            raise ValueError("an intersection of classes (&&) has no equal here: write the characters out")
        return match[0]
    escape = match["escape"]
    if escape in "hHRXGk":
        raise ValueError(f"\\{escape} has no equal here: write it otherwise")
    return {"z": "\\Z", "Z": "(?=\\n?\\Z)", "e": "\\x1b"}.get(escape, match[0])


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
    named = re.compile(r"\{([A-Za-z]\w*)\}").match(text, at)
    if named is not None:
        if named[1] not in pattern.groupindex:
            raise ValueError(f"there is no group {named[1]!r}")
        return pattern.groupindex[named[1]], named.end()
    if not text[at : at + 1].isdigit():
        raise ValueError("a $ must be followed by the number or the {name} of a group")
    number, end = int(text[at]), at + 1
    if number > pattern.groups:
        raise ValueError(f"there is no group {number}")
    while text[end : end + 1].isdigit() and number * 10 + int(text[end]) <= pattern.groups:
        number, end = number * 10 + int(text[end]), end + 1
    return number, end
