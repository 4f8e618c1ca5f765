"""The few forms of PromQL that docker/monitoring/dashboard.json uses, evaluated over scraped samples.

Any other form is refused, so that a panel is never drawn from a query that was half understood. The rules are Prometheus's:
a selector takes the samples of the last scrape, a rate is extrapolated to the edges of its window, a counter may start anew.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Value = Vector | float
NAME = "__name__"


class QueryError(ValueError):
    """A query has a form that this evaluator does not know."""


@dataclass(frozen=True)
class Scrape:
    """What all targets said at one time. at: Unix time; samples: by labels, with the metric's name as `__name__`."""

    at: float
    samples: Vector


@dataclass(frozen=True)
class Moment:
    """The scrapes up to the time at which a query is evaluated, oldest first."""

    scrapes: Sequence[Scrape]

    @property
    def at(self) -> float:
        """Unix time of the last scrape."""
        return self.scrapes[-1].at


Query = Callable[[Moment], Value]
_TOKEN = re.compile(r'\s*(?:([A-Za-z_:][\w:]*)|(\d+(?:\.\d+)?[smh]?)|("[^"]*")|(==|=~|[-(){}\[\],=]))')
_UNITS = {"s": 1, "m": 60, "h": 3600}
_OVER: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "count": lambda values: float(len(values))}


def parsed(text: str) -> Query:
    """The query of `text`, its variables replaced by values before. Raises QueryError."""
    tokens, end = [], 0
    while text[end:].strip():
        found = _TOKEN.match(text, end)
        if found is None:
            raise QueryError(f"{text!r}: {text[end:]!r} is not known")
        tokens.append(found[found.lastindex or 0])
        end = found.end()
    parser = _Parser(text, tokens)
    query = parser.either()
    parser.expect("")
    return query


class _Parser:
    """One method for each form, by recursive descent."""

    def __init__(self, text: str, tokens: list[str]) -> None:
        self._text, self._tokens, self._at = text, tokens, 0

    def either(self) -> Query:
        """`A or B`"""
        left = self._compared()
        while self._took("or"):
            left = _or(left, self._compared())
        return left

    def _compared(self) -> Query:
        """`A == bool B`"""
        left = self._difference()
        if self._took("=="):
            self.expect("bool")
            return _by_element(left, self._difference(), lambda a, b: float(a == b))
        return left

    def _difference(self) -> Query:
        """`A - B`"""
        left = self._operand()
        while self._took("-"):
            left = _by_element(left, self._operand(), operator.sub)
        return left

    def _operand(self) -> Query:
        token = self._next()
        if re.fullmatch(r"[\d.]+", token):
            return _constant(float(token))
        if token in _OVER:
            return self._aggregate(token)
        if self._peek() == "(":
            return self._call(token)
        if re.fullmatch(r"[A-Za-z_:][\w:]*", token) is None:
            raise QueryError(f"{self._text!r}: {token!r} is not known")
        return _instant(self._matcher(token))

    def _call(self, function: str) -> Query:
        self.expect("(")
        if function == "time":
            query: Query = _now
        elif function == "vector":
            query = _vector(float(self._next()))
        elif function in ("rate", "increase"):
            query = _rate(*self._range(), per_second=function == "rate")
        elif function == "histogram_quantile":
            share = float(self._next())
            self.expect(",")
            query = _quantile(share, self.either())
        elif function == "clamp_min":
            of = self.either()
            self.expect(",")
            query = _by_element(of, _constant(float(self._next())), max)
        else:
            raise QueryError(f"{self._text!r}: the function {function}() is not known")
        self.expect(")")
        return query

    def _aggregate(self, name: str) -> Query:
        by: list[str] = []
        if self._took("by"):
            self.expect("(")
            by.append(self._next())
            while self._took(","):
                by.append(self._next())
            self.expect(")")
        self.expect("(")
        of = self.either()
        self.expect(")")
        return _aggregate(_OVER[name], frozenset(by), of)

    def _range(self) -> tuple[Callable[[Labels], bool], float]:
        matches = self._matcher(self._next())
        self.expect("[")
        length = self._next()
        self.expect("]")
        if length[-1] not in _UNITS:
            raise QueryError(f"{self._text!r}: the range {length!r} has no unit")
        return matches, float(length[:-1]) * _UNITS[length[-1]]

    def _matcher(self, name: str) -> Callable[[Labels], bool]:
        """`name{label="value",label=~"regex"}`"""
        wanted = {NAME: re.compile(re.escape(name))}
        if self._took("{"):
            while not self._took("}"):
                label, how, value = self._next(), self._next(), self._next()
                if how not in ("=", "=~"):
                    raise QueryError(f"{self._text!r}: the matcher {how!r} is not known")
                wanted[label] = re.compile(value[1:-1] if how == "=~" else re.escape(value[1:-1]))
                self._took(",")

        def matches(labels: Labels) -> bool:
            found = dict(labels)
            return all(pattern.fullmatch(found.get(label, "")) for label, pattern in wanted.items())

        return matches

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise QueryError(f"{self._text!r} ends too early")
        self._at += 1
        return token

    def _took(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._at += 1
        return True

    def expect(self, token: str) -> None:
        """Take `token`; the empty one is the end."""
        if self._peek() != token:
            raise QueryError(f"{self._text!r}: {self._peek() or 'the end'!r} instead of {token or 'the end'!r}")
        self._at += 1


def _constant(value: float) -> Query:
    return lambda moment: value


def _vector(value: float) -> Query:
    return lambda moment: {frozenset(): value}


def _now(moment: Moment) -> Value:
    return moment.at


def _instant(matches: Callable[[Labels], bool]) -> Query:
    return lambda moment: {labels: value for labels, value in moment.scrapes[-1].samples.items() if matches(labels)}


def _many(value: Value) -> Vector:
    if not isinstance(value, dict):
        raise QueryError("a number where a vector is needed")
    return value


def _or(left: Query, right: Query) -> Query:
    return lambda moment: {**_many(right(moment)), **_many(left(moment))}


def _unnamed(labels: Labels) -> Labels:
    return frozenset(pair for pair in labels if pair[0] != NAME)


def _by_element(left: Query, right: Query, combine: Callable[[float, float], float]) -> Query:
    """One of the two is a number."""

    def query(moment: Moment) -> Value:
        a, b = left(moment), right(moment)
        if isinstance(a, dict) and isinstance(b, dict):
            raise QueryError("two vectors are not combined")
        if isinstance(a, dict):
            return {_unnamed(labels): combine(value, b) for labels, value in a.items()}  # type: ignore[arg-type]
        if isinstance(b, dict):
            return {_unnamed(labels): combine(a, value) for labels, value in b.items()}
        return combine(a, b)

    return query


def _aggregate(over: Callable[[list[float]], float], by: frozenset[str], of: Query) -> Query:
    def query(moment: Moment) -> Value:
        groups: dict[Labels, list[float]] = {}
        for labels, value in _many(of(moment)).items():
            groups.setdefault(frozenset(pair for pair in labels if pair[0] in by), []).append(value)
        return {labels: float(over(values)) for labels, values in groups.items()}

    return query


def _rate(matches: Callable[[Labels], bool], length: float, per_second: bool) -> Query:
    def query(moment: Moment) -> Value:
        series: dict[Labels, list[tuple[float, float]]] = {}
        for scrape in moment.scrapes:
            if scrape.at > moment.at - length:
                for labels, value in scrape.samples.items():
                    if matches(labels):
                        series.setdefault(_unnamed(labels), []).append((scrape.at, value))
        return {
            labels: _increase(points, moment.at - length, moment.at) / (length if per_second else 1)
            for labels, points in series.items()
            if len(points) > 1
        }

    return query


def _increase(points: list[tuple[float, float]], begin: float, end: float) -> float:
    """Of a counter, extrapolated to the edges of the window if the samples come close to them."""
    (first_at, first), (last_at, _) = points[0], points[-1]
    # A counter that went down began again at zero.
    result = sum(b - a if b >= a else b for (_, a), (_, b) in pairwise(points))
    covered = last_at - first_at
    between = covered / (len(points) - 1)
    before, after = first_at - begin, end - last_at
    before = between / 2 if before >= between * 1.1 else before
    after = between / 2 if after >= between * 1.1 else after
    if result > 0:
        before = min(before, covered * first / result)  # no counter is ever below zero
    return result * (covered + before + after) / covered


def _quantile(share: float, of: Query) -> Query:
    def query(moment: Moment) -> Value:
        histograms: dict[Labels, list[tuple[float, float]]] = {}
        for labels, value in _many(of(moment)).items():
            bound = float(dict(labels)["le"])
            histograms.setdefault(frozenset(p for p in labels if p[0] not in ("le", NAME)), []).append((bound, value))
        return {labels: _within(share, sorted(buckets)) for labels, buckets in histograms.items()}

    return query


def _within(share: float, buckets: list[tuple[float, float]]) -> float:
    """Linear between the bounds of the bucket where the quantile lies; NaN where nothing was observed."""
    total = buckets[-1][1]
    if not math.isinf(buckets[-1][0]) or total == 0:
        return math.nan
    lower, below = 0.0, 0.0
    for bound, count in buckets[:-1]:
        if count >= share * total:
            return lower + (bound - lower) * (share * total - below) / (count - below)
        lower, below = bound, count
    return lower


def over_time(query: Query, scrapes: Sequence[Scrape]) -> Iterator[tuple[float, Vector]]:
    """The query at the time of each scrape; a number is a vector of one element."""
    for count in range(1, len(scrapes) + 1):
        moment = Moment(scrapes[:count])
        value = query(moment)
        yield moment.at, value if isinstance(value, dict) else {frozenset(): value}
