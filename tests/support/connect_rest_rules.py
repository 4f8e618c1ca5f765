"""Where our worker's REST answers otherwise than Kafka Connect's, and why: each difference falls under one rule.

python tests/support/connect_rest_rules.py --write    makes the table of docs/connect-parity.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.connect_rest import differences

PAGE = Path(__file__).parents[2] / "docs" / "connect-parity.md"
_TABLE = re.compile(r"<!-- rest -->\n.*?<!-- end -->", re.DOTALL)


@dataclass(frozen=True)
class Rule:
    """A difference. case, place: patterns of the request and of the place in its answer. The rest is the table's row."""

    case: str
    place: str
    theirs: str
    ours: str
    where: str
    there: str
    here: str

    def covers(self, case: str, place: str, theirs: Any, ours: Any) -> bool:
        """Whether a difference falls under it."""
        return all(
            re.fullmatch(pattern, text, re.DOTALL)
            for pattern, text in (
                (self.case, case),
                (self.place, place),
                (self.theirs, str(theirs)),
                (self.ours, str(ours)),
            )
        )


ANY = ".*"
_VALIDATE = r"PUT /connector-plugins/.*/config/validate .*"
RULES = (
    Rule(ANY, "status", "500", "200|201|400|404", "an invalid request: not JSON, another structure, an unknown field, a malformed offset",
         "500", "400 (404 for a class that is not a plugin) with the reason; the answer where nothing is wrong"),
    Rule(r"\w+ /connectors/(none|two)/topics.*", "status", "200|202", "404", "topics of a connector that does not exist", "200, an empty list", "404, as for all its other paths"),
    Rule(r"OPTIONS /connectors/none/tasks.*", "allow", ".*POST", ANY, "`PUT /connectors/{c}/fence`, `POST /connectors/{c}/tasks`",
         "internal requests between workers", "none: workers communicate through topics"),
    Rule(r"PUT /connectors/none/fence|POST /connectors/none/tasks", "status", "400|500", "404|405", "`PUT /connectors/{c}/fence`, `POST /connectors/{c}/tasks`",
         "internal requests between workers", "none: workers communicate through topics"),
    Rule(r"GET .* Origin: (https://evil.example|https://console.example:443|null)( .*)?", "status", "200", "403", "a request from a web page of another origin, without a token",
         "answered, without CORS headers", "403: otherwise any web page could control a worker on the loopback address"),
    Rule(r"GET /connectors;a=b", "status", "200", "404", "path parameters, `/connectors;a=b`", "ignored", "404"),
    Rule(r"PUT .* Content-Type: .*", "status", "400", "415", "an invalid `Content-Type`", "400", "415"),
    Rule(r"GET /connectors .*Accept: .*", "body.*|type", ANY, ANY, "errors for an invalid `Accept`", "an HTML page of the HTTP server, or nothing", "JSON, as for all errors"),
    Rule(r'PATCH /connectors/pc/config \{"name": .*', "status", "200", "400", "`PATCH` of a configuration with another `name`",
         "stored: the connector then has two names", "400, as for `PUT`"),
    Rule(r'PATCH .*"filename": .*"more": (1|null).*', "status", "200", "400", "a file source's offset with extra fields in its partition",
         "stored, and read by no task", "400; one that is stored may be deleted"),
    Rule(r'PUT .*"key\.converter\.plugin\.version": .*', r"body configs key\.converter\.plugin\.version (value )?errors", "none", "some",
         "a version for a converter that the connector does not name", "ignored", "an error of that setting"),
    Rule(r'PUT .*"transforms\.a\.type": "( .*|[^"]* )".*', r"body configs transforms\.a\.(negate|predicate)", "absent", ANY, "a transform's or predicate's class with spaces around it", "accepted, its settings are ignored", "accepted, with its settings"),
    Rule(r'PUT .*"(transforms\.a|predicates\.p)\.type": "( .*|[^"]* )".*', r"body configs (transforms\.a|predicates\.p)\.plugin\.version (definition default_value|value value)", "None", ANY,
         "a transform's or predicate's class with spaces around it", "accepted, its settings are ignored", "accepted, with its settings"),
    Rule(r'PUT .*"value\.converter": "( .*|[^"]* )".*', r"body configs value\.converter\.plugin\.version value recommended_values", ANY, r"\[\]",
         "a converter's class with spaces around it", "refused, its versions are listed", "refused"),
    Rule(r'PUT .*"connector\.plugin\.version": "9\.9".*', r"body configs value\.converter\.plugin\.version .*|body configs (topics|file)", ANY, ANY,
         "a version of a connector that does not exist", "its settings are omitted", "its settings are shown"),
    Rule(r"GET /connector-plugins/(Cast\$Value|.*\.FileStreamSink)/config.*", "status", "404", "200", "a plugin under another of its names", "404", "the same plugin"),
    Rule(ANY, "type", "absent", "application/json", "errors of paths, methods and media types", "JSON without a `Content-Type`", "JSON with it"),
    Rule(r"GET /connectors//|.*/connector-plugins/\w+//config.*", "status", "400", "200|404", "repeated slashes", "400", "ignored at the end of the path, otherwise 404"),
    Rule(r"GET /connector-plugins\?connectorsOnly=maybe|POST .*includeTasks=maybe|PUT .*scope=bogus .*", "status", "20.", "400",
         "a misspelt flag or scope", "read as the default", "400"),
    Rule(r'POST /connectors .*"name": "a/b".*|.* /connectors/(a%2Fb|none%2F).*', "status", "201|400", "400|404", "a name with a slash",
         "a connector that no request can reach", "refused"),
    Rule(r".* /connectors/a(%2520|%5C)b.*", "status", "400", "20.", "a name with `%` or a backslash", "a connector that no request can reach", "reached, encoded"),
    Rule(r'POST .*"name": "a%20b".*', "location", ANY, ANY, "`Location` of such a name", "not encoded: another connector's", "encoded"),
    Rule(r"GET /connectors #[123]", "body", ANY, ANY, "the list of connectors after these requests", "includes connectors that cannot be deleted", "does not"),
    Rule("GET /", "body keyorder_version", "absent", ANY, "`GET /`", "", "also `keyorder_version`"),
    Rule(r"GET /connector-plugins.*", r"body (source|sink|converter|header_converter) (keyorder|io\.confluent).*", "absent", ANY,
         "plugins", "Kafka's", "also ours, and converters with a registry"),
    Rule(ANY, r"body (configs )?(\w+\.converter) value recommended_values", ANY, ".*io.confluent.*", "recommended converters", "Kafka's", "also these"),
    Rule(ANY, r"body (configs )?(key\.delimiter|errors\.deadletterqueue\.policy|topic\.creation\.default\.(partitions|replication\.factor))", "absent", ANY,
         "settings of connectors", "", "also `errors.deadletterqueue.policy`, `key.delimiter` of the file connectors; `topic.creation.default.*` even if not set"),
    Rule(ANY, r"body (configs )?([\w.]+\.)?converter\.type", ANY, "absent", "`converter.type` of a converter", "a setting", "no setting: the worker knows it"),
    Rule(ANY, "body", r".*converter\.type.*", r"\{\}|\[\]", "`converter.type` of a converter", "a setting", "no setting: the worker knows it"),
    Rule(ANY, r"body (configs )?file (definition )?required|body configs file( (value )?errors)?", ANY, ANY, "`file` of the file connectors",
         "optional: standard input and output by default", "required: a worker cannot read its standard input again"),
    Rule(_VALIDATE, r"body configs (producer|consumer)\.override\.[\w.]+ definition", ANY, "None", "client settings in `validate`",
         "with the definitions of Java's clients", "with values and errors only: the client library has no definitions"),
    Rule(_VALIDATE, r"body configs (producer|consumer)\.override\.[\w.]+ (value )?errors", "none", "some", "a client setting that the client does not accept, or that would break order",
         "reported when a task starts, or never", "an error of that setting"),
    Rule(_VALIDATE, r"body configs (errors\.retry\.timeout|errors\.retry\.delay\.max\.ms|batch\.size|transaction\.boundary\.interval\.ms|transforms\.a\.predicate) (value )?errors",
         "none", "some", "numbers out of range; a predicate that is not defined", "accepted, or reported when a task starts", "an error of that setting"),
    Rule(_VALIDATE, r"body configs (transforms\.a|predicates\.p)\.[\w.]+ (value )?errors", "none", "some", "settings of a transform or predicate that contradict each other; invalid expressions and date patterns",
         "reported when a task starts, or with a record", "an error of that setting"),
    Rule(_VALIDATE, r"body configs topics\.regex (value )?errors", "none", "some", "`topics.regex` with syntax that a consumer cannot match (`&&`, `\\p{L}`, look-around)", "matched", "an error of that setting"),
    Rule(_VALIDATE, r"body configs \w+\.converter\.(schemas\.cache\.size|converter\.encoding) (value )?errors", "none", "some", "a size below 0, an unknown character set",
         "reported when a task starts", "an error of that setting"),
    Rule(_VALIDATE, r"body configs offsets\.storage\.topic (value )?errors", "none", "some", "`offsets.storage.topic`", "a separate topic for the connector", "an error: the offsets of all connectors are in the worker's topic"),
    Rule(_VALIDATE, r"body configs (producer|consumer)\.override\.[\w.]+", "absent", ANY, "settings of a client that the connector does not use", "omitted", "shown"),
    Rule(_VALIDATE, r"body configs (transforms\.a\.type|predicates\.p\.type|\w+\.converter) value value", ANY, "None", "a class that is not a plugin, or a plugin of another kind", "the setting's value is the class", "its value is null; both report the error"),
    Rule(_VALIDATE, r"body configs value\.converter\.plugin\.version value visible", "True", "False", "a class that is not a plugin, or a plugin of another kind", "the setting's value is the class", "its value is null; both report the error"),
    Rule(_VALIDATE, r"body error_count", "none", "some", "the number of errors", "", "includes those above"),
    Rule(_VALIDATE, r"body configs transforms\.a\.[\w.]+ definition order", ANY, ANY, "`order` of a transform's settings", "in no order", "in the order of their definition"),
    Rule(r"PUT /connector-plugins/org.*Connector/config/validate .*", "status", "400", "200", "`connector.class` with another name of the plugin than in the path",
         "400", "the same plugin"),
    Rule(r"POST .*consumer\.override\.group\.id.*|DELETE /connectors/x", "status", "20.", "40.", "`consumer.override.group.id`", "the task then fails", "400: the offsets would be another group's"),
    Rule(r"PUT /connectors/kind/config .*", "status", "200", "400", "a new class of the other kind (source, sink) for a connector", "a sink with a source's offsets", "400: delete it first"),
    Rule(r"POST /connectors/src/tasks/0/restart", "status", "409", "404", "restart of a task of a stopped connector", "409 every time", "404: it has no tasks"),
    Rule(r'PATCH .*"position": 4.*', "status", "200", "400", "a file source's offset set back", "old lines after newer ones of their keys", "400"),
    Rule(r'PATCH .*"offsets": \[\{\}\].*', "status", "200", "400", "an offset without a partition", "stored", "400"),
    Rule(r'PATCH .*("kafka_offset": 1000000|"offset": null).*', "status", "200", "400", "a sink's offset past the end; the offset of one partition deleted",
         "accepted: records are skipped, or repeated after newer ones", "400: give an existing offset, or DELETE all"),
    Rule(r"\w+ /admin/loggers.*", "status", "200|404", "200|400|404", "loggers of other libraries; Java's below `org.apache.kafka.connect`",
         "any name", "404 for other Python libraries; Java's names mean `keyorder.connect`"),
    Rule(r"GET /admin/loggers/?", r"body keyorder.*", "absent", ANY, "the list of loggers", "Java's", "also Python's"),
    Rule(r"PUT /admin/loggers/.*", "body", ANY, ANY, "the loggers that a request has changed", "Java's", "also Python's"),
)  # fmt: skip


def judged(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[list[str], dict[Rule, int]]:
    """(differences that no rule covers; how many requests each rule is used in)."""
    uncovered: list[str] = []
    used: dict[Rule, int] = dict.fromkeys(RULES, 0)
    for case, answer in theirs.items():
        found = differences(answer, ours[case])
        if any(place == "status" for place, _, _ in found):
            found = [each for each in found if each[0] == "status"]
        rules = set()
        for place, a, b in found:
            rule = next((rule for rule in RULES if rule.covers(case, place, a, b)), None)
            if rule is None:
                uncovered.append(f"{case}: {place}: {str(a)[:200]} there, {str(b)[:200]} here")
            else:
                rules.add(rule)
        for rule in rules:
            used[rule] += 1
    return uncovered, used


def page(text: str, theirs: Mapping[str, Any]) -> str:
    """The page with the table of the differences."""
    rows = dict.fromkeys((rule.where, rule.there, rule.here) for rule in RULES)
    lines = [
        f"{len(theirs)} requests are sent to both.",
        "",
        "| request | Kafka Connect | here |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    return _TABLE.sub(lambda m: "<!-- rest -->\n" + "\n".join(lines) + "\n<!-- end -->", text)


if __name__ == "__main__":
    from support.connect_rest import recorded

    if "--write" in sys.argv:
        PAGE.write_text(page(PAGE.read_text(), recorded()))
