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
    Rule(ANY, "status", "500", "200|201|400|404", "a request that is wrong: no JSON, another shape, an unknown field, a malformed offset",
         "500", "400 (404 for a class that is no plugin), and what is wrong; where nothing is wrong the answer"),
    Rule(r"\w+ /connectors/(none|two)/topics.*", "status", "200|202", "404", "topics of a connector that is not there", "200, an empty list", "404, as all its other paths"),
    Rule(r"OPTIONS /connectors/none/tasks.*", "allow", ".*POST", ANY, "`PUT /connectors/{c}/fence`, `POST /connectors/{c}/tasks`",
         "the workers' own requests", "workers agree by topics: there are no such requests"),
    Rule(r"PUT /connectors/none/fence|POST /connectors/none/tasks", "status", "400|500", "404|405", "`PUT /connectors/{c}/fence`, `POST /connectors/{c}/tasks`",
         "the workers' own requests", "workers agree by topics: there are no such requests"),
    Rule(r"GET .* Origin: (https://evil.example|https://console.example:443|null)( .*)?", "status", "200", "403", "a page of another site, without a token",
         "answered, without CORS headers", "403: a page could otherwise change a worker on the loopback"),
    Rule(r"GET /connectors;a=b", "status", "200", "404", "parameters of a path, `/connectors;a=b`", "left out", "404"),
    Rule(r"PUT .* Content-Type: .*", "status", "400", "415", "a `Content-Type` that is none", "400", "415"),
    Rule(r"GET /connectors .*Accept: .*", "body.*|type", ANY, ANY, "errors of an `Accept` that is none", "a page of the HTTP server, or nothing", "JSON, as all errors"),
    Rule(r'PATCH /connectors/pc/config \{"name": .*', "status", "200", "400", "`PATCH` of a configuration with another `name`",
         "stored: the connector then bears two names", "400, as `PUT`"),
    Rule(r'PATCH .*"filename": .*"more": (1|null).*', "status", "200", "400", "a file source's offset with further members in its partition",
         "stored, and read by no task", "400; to forget one that is stored is allowed"),
    Rule(r'PUT .*"key\.converter\.plugin\.version": .*', r"body configs key\.converter\.plugin\.version (value )?errors", "none", "some",
         "a version of a converter that the connector does not name", "left out", "an error of that setting"),
    Rule(r'PUT .*"transforms\.a\.type": "( .*|[^"]* )".*', r"body configs transforms\.a\.(negate|predicate)", "absent", ANY, "a step's class with spaces around", "taken, without its settings", "taken, with them"),
    Rule(r'PUT .*"(transforms\.a|predicates\.p)\.type": "( .*|[^"]* )".*', r"body configs (transforms\.a|predicates\.p)\.plugin\.version (definition default_value|value value)", "None", ANY,
         "a step's class with spaces around", "taken, without its settings", "taken, with them"),
    Rule(r'PUT .*"value\.converter": "( .*|[^"]* )".*', r"body configs value\.converter\.plugin\.version value recommended_values", ANY, r"\[\]",
         "a converter's class with spaces around", "refused, its versions shown", "refused"),
    Rule(r'PUT .*"connector\.plugin\.version": "9\.9".*', r"body configs value\.converter\.plugin\.version .*|body configs (topics|file)", ANY, ANY,
         "a version of a connector that is not there", "its settings are left out", "they are shown"),
    Rule(r"GET /connector-plugins/(Cast\$Value|.*\.FileStreamSink)/config.*", "status", "404", "200", "a plugin by another of its names", "404", "the same plugin"),
    Rule(ANY, "type", "absent", "application/json", "errors of paths, methods and media types", "JSON without a `Content-Type`", "with it"),
    Rule(r"GET /connectors//|.*/connector-plugins/\w+//config.*", "status", "400", "200|404", "more slashes than one", "400", "those at the end change nothing; else 404"),
    Rule(r"GET /connector-plugins\?connectorsOnly=maybe|POST .*includeTasks=maybe|PUT .*scope=bogus .*", "status", "20.", "400",
         "a flag or a scope that is misspelt", "taken for the default", "400"),
    Rule(r'POST /connectors .*"name": "a/b".*|.* /connectors/(a%2Fb|none%2F).*', "status", "201|400", "400|404", "a name with a slash",
         "a connector that no request can reach", "refused"),
    Rule(r".* /connectors/a(%2520|%5C)b.*", "status", "400", "20.", "a name with `%` or a backslash", "a connector that no request can reach", "reached, encoded"),
    Rule(r'POST .*"name": "a%20b".*', "location", ANY, ANY, "`Location` of such a name", "not encoded: another connector's", "encoded"),
    Rule(r"GET /connectors #[123]", "body", ANY, ANY, "the list of connectors after these requests", "holds those that were made and cannot be deleted", "does not"),
    Rule("GET /", "body keyorder_version", "absent", ANY, "`GET /`", "", "also `keyorder_version`"),
    Rule(r"GET /connector-plugins.*", r"body (source|sink|converter|header_converter) (keyorder|io\.confluent).*", "absent", ANY,
         "plugins", "Kafka's", "also ours, and converters with a registry"),
    Rule(ANY, r"body (configs )?(\w+\.converter) value recommended_values", ANY, ".*io.confluent.*", "recommended converters", "Kafka's", "these, too"),
    Rule(ANY, r"body (configs )?(key\.delimiter|errors\.deadletterqueue\.policy|topic\.creation\.default\.(partitions|replication\.factor))", "absent", ANY,
         "settings of connectors", "", "also `errors.deadletterqueue.policy`, `key.delimiter` of files; `topic.creation.default.*` before they are set"),
    Rule(ANY, r"body (configs )?([\w.]+\.)?converter\.type", ANY, "absent", "`converter.type` of a converter", "a setting", "a worker knows which it is"),
    Rule(ANY, "body", r".*converter\.type.*", r"\{\}|\[\]", "`converter.type` of a converter", "a setting", "a worker knows which it is"),
    Rule(ANY, r"body (configs )?file (definition )?required|body configs file( (value )?errors)?", ANY, ANY, "`file` of the file connectors",
         "may be left out: standard input and output", "required: what a worker reads from its standard input it cannot read again"),
    Rule(_VALIDATE, r"body configs (producer|consumer)\.override\.[\w.]+ definition", ANY, "None", "settings of clients in `validate`",
         "with the definitions of Java's clients", "with their values and errors alone: the client library has no definitions"),
    Rule(_VALIDATE, r"body configs (producer|consumer)\.override\.[\w.]+ (value )?errors", "none", "some", "a setting of clients that they do not take, or that breaks order",
         "found when a task starts, or never", "an error of that setting"),
    Rule(_VALIDATE, r"body configs (errors\.retry\.timeout|errors\.retry\.delay\.max\.ms|batch\.size|transaction\.boundary\.interval\.ms|transforms\.a\.predicate) (value )?errors",
         "none", "some", "numbers out of range; a predicate that is not defined", "taken, or found when a task starts", "an error of that setting"),
    Rule(_VALIDATE, r"body configs (transforms\.a|predicates\.p)\.[\w.]+ (value )?errors", "none", "some", "settings of a step that do not go together; expressions and dates that are none",
         "found when a task starts, or with a record", "an error of that setting"),
    Rule(_VALIDATE, r"body configs topics\.regex (value )?errors", "none", "some", "`topics.regex` with what a consumer cannot match (`&&`, `\\p{L}`, look-around)", "matched", "an error of that setting"),
    Rule(_VALIDATE, r"body configs \w+\.converter\.(schemas\.cache\.size|converter\.encoding) (value )?errors", "none", "some", "a size below 0, a character set that is none",
         "found when a task starts", "an error of that setting"),
    Rule(_VALIDATE, r"body configs offsets\.storage\.topic (value )?errors", "none", "some", "`offsets.storage.topic`", "a topic of the connector's own", "an error: offsets of all connectors are in the worker's topic"),
    Rule(_VALIDATE, r"body configs (producer|consumer)\.override\.[\w.]+", "absent", ANY, "settings of a client that the connector does not have", "left out", "shown"),
    Rule(_VALIDATE, r"body configs (transforms\.a\.type|predicates\.p\.type|\w+\.converter) value value", ANY, "None", "a class that is no plugin, or one of another kind", "its value is the class", "its value is null; both blame it"),
    Rule(_VALIDATE, r"body configs value\.converter\.plugin\.version value visible", "True", "False", "a class that is no plugin, or one of another kind", "its value is the class", "its value is null; both blame it"),
    Rule(_VALIDATE, r"body error_count", "none", "some", "the number of errors", "", "with those above"),
    Rule(_VALIDATE, r"body configs transforms\.a\.[\w.]+ definition order", ANY, ANY, "`order` of a transform's settings", "in no order", "in that of their definition"),
    Rule(r"PUT /connector-plugins/org.*Connector/config/validate .*", "status", "400", "200", "`connector.class` by another of the plugin's names than the path",
         "400", "the same plugin"),
    Rule(r"POST .*consumer\.override\.group\.id.*|DELETE /connectors/x", "status", "20.", "40.", "`consumer.override.group.id`", "the task then fails", "400: the offsets would be another group's"),
    Rule(r"PUT /connectors/kind/config .*", "status", "200", "400", "a connector's class of the other kind", "a sink with a source's offsets", "400: delete it first"),
    Rule(r"POST /connectors/src/tasks/0/restart", "status", "409", "404", "restart of a task of a stopped connector", "409, for ever", "404: it has none"),
    Rule(r'PATCH .*"position": 4.*', "status", "200", "400", "a file source's offset further back", "old lines behind newer ones of their keys", "400"),
    Rule(r'PATCH .*"offsets": \[\{\}\].*', "status", "200", "400", "an offset without a partition", "stored", "400"),
    Rule(r'PATCH .*("kafka_offset": 1000000|"offset": null).*', "status", "200", "400", "a sink's offset past the end; one partition's offset forgotten",
         "taken: records are left out, or come again behind newer ones", "400: give an offset that is there, or DELETE all"),
    Rule(r"\w+ /admin/loggers.*", "status", "200|404", "200|400|404", "loggers of other libraries; Java's below `org.apache.kafka.connect`",
         "any name", "not those of other Python libraries, 404; those of Java are `keyorder.connect`"),
    Rule(r"GET /admin/loggers/?", r"body keyorder.*", "absent", ANY, "the list of loggers", "Java's", "also Python's"),
    Rule(r"PUT /admin/loggers/.*", "body", ANY, ANY, "the loggers that a request has set", "Java's", "also Python's"),
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
        f"{len(theirs)} requests are made of both.",
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
