"""A worker's answers to the requests of `connect_rest_cases`, in a form that can be compared with another worker's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
from confluent_kafka import KafkaException
from keyorder import TopicAdmin
from support.cluster import KafkaUnderTest
from support.connect_rest_cases import Case, Wait, cases
from support.connect_rig import until

ANSWERS = Path(__file__).parents[1] / "connector" / "connect" / "rest_answers.json"
# What each run has of its own, or each program words as it likes: only its type is compared.
_TYPED = {
    "message",
    "trace",
    "documentation",
    "display_name",
    "last_modified",
    "kafka_cluster_id",
    "commit",
    "worker_id",
    "kafka_offset",
}
_STEPS = ("transforms.", "predicates.", "value.converter.")
_HEADERS = (
    "location",
    "allow",
    "access-control-allow-origin",
    "access-control-allow-methods",
    "access-control-allow-credentials",
)
_LATER = (
    "momentarily",
    "Cannot complete request",
    "Unable to proceed",
    "conflicting operation",
    "not left their group",
    "NON_EMPTY",
)


class Run:
    """One run of all requests against one worker."""

    def __init__(self, url: str, kafka: KafkaUnderTest, folder: Path, topic: str) -> None:
        TopicAdmin(kafka.client_config()).create(topic, 2)
        admin = kafka.admin()
        for done in admin.delete_consumer_groups(["connect-snk", "connect-two", "connect-num"]).values():
            with suppress(KafkaException):  # there is none of an earlier run
                done.result(30)
        (folder / "in.txt").write_text("one\ntwo\nthree\n")
        self._http = httpx.Client(base_url=url, timeout=100.0, limits=httpx.Limits(max_keepalive_connections=0))
        self._given = {"{folder}": str(folder), "{topic}": topic}
        self._worker = url.partition("://")[2]

    def answers(self) -> dict[str, Any]:
        """Every request's name with its answer."""
        found: dict[str, Any] = {}
        for step in cases():
            if isinstance(step, Wait):
                self._wait(step)
            else:
                assert step.name not in found, f"two requests are named {step.name}"
                found[step.name] = self._answer(step)
        return found

    def _filled(self, thing: Any) -> Any:
        text = json.dumps(thing)
        for name, value in self._given.items():
            text = text.replace(name, value)
        return json.loads(text)

    def _answer(self, case: Case) -> Any:
        options: dict[str, Any] = {"headers": case.headers}
        if case.raw is not None:
            options["content"] = self._filled(case.raw).encode()
        elif case.body is not None:
            options["json"] = self._filled(case.body)

        def ask() -> httpx.Response | None:
            found = self._http.request(case.method, self._filled(case.path), **options)
            busy = found.status_code in (400, 409, 500) and any(word in found.text for word in _LATER)
            early = case.early and case.early in found.text
            return None if early or (busy and not case.once) else found

        return self._shape(until(ask, f"{case.name} is answered"), case)

    def _wait(self, wait: Wait) -> None:
        def there() -> bool:
            status = self._json(f"/connectors/{wait.connector}/status")
            tasks = [task["state"] for task in status.get("tasks", ())]
            return (
                status.get("connector", {}).get("state") == wait.state
                and (wait.tasks < 0 or tasks == [wait.task_state] * wait.tasks)
                and len(self._json(f"/connectors/{wait.connector}/offsets").get("offsets", ())) >= wait.offsets
                and len(self._json(f"/connectors/{wait.connector}/topics").get(wait.connector, {}).get("topics", ()))
                >= wait.topics
            )

        until(there, lambda: f"{wait}: {self._json(f'/connectors/{wait.connector}/status')}")

    def _json(self, path: str) -> Any:
        found = self._http.get(path)
        return found.json() if found.is_success else {}

    def _shape(self, answer: httpx.Response, case: Case) -> Any:
        found: dict[str, Any] = {"status": answer.status_code}
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if kind and answer.content:
            found["type"] = kind
        for name in _HEADERS:
            if name in answer.headers:
                value = answer.headers[name].removeprefix(str(answer.url.copy_with(path="", query=None)).rstrip("/"))
                found[name] = (
                    ",".join(sorted(w.strip() for w in value.split(",")))
                    if name.endswith(("allow", "methods"))
                    else unquote(value)
                )
        try:
            found["body"] = self._plain(answer.json()) if answer.content else None
        except ValueError:
            found["body"] = "no JSON"
        if not case.full and "configs" in (found["body"] or ()):
            shown = found["body"]["configs"]
            found["body"]["configs"] = {
                name: item
                for name, item in shown.items()
                if name in case.body or item["value"]["errors"] == "some" or name.startswith(_STEPS)
            }
        if found["status"] == 201 and isinstance(found["body"], dict):
            found["body"]["tasks"] = "some"  # by then there may be none yet
        return found

    def _plain(self, thing: Any) -> Any:
        if isinstance(thing, dict):
            return {self._text(k): self._member(k, v) for k, v in thing.items()}
        if isinstance(thing, list):
            if thing and all(isinstance(item, dict) for item in thing):
                if all({"definition", "value"} <= set(item) for item in thing):
                    return {item["value"]["name"]: self._plain(item) for item in thing}
                if all("name" in item and "type" in item for item in thing):
                    return {item["name"]: self._plain(item) for item in thing}
                if all("class" in item for item in thing):
                    return {f"{item['type']} {item['class']}": self._plain(item) for item in thing}
            return sorted((self._plain(item) for item in thing), key=lambda item: json.dumps(item, sort_keys=True))
        return self._text(thing) if isinstance(thing, str) else thing

    def _member(self, name: str, value: Any) -> Any:
        if name == "errors" and isinstance(value, list):
            return "some" if value else "none"  # which settings are blamed, not in which words or how often
        if name == "error_count":
            return "some" if value else "none"
        return _kind(value) if name in _TYPED else self._plain(value)

    def _text(self, text: str) -> str:
        for name, value in self._given.items():
            text = text.replace(value, name)
        return text.replace(self._worker, "{worker}")


def _kind(thing: Any) -> str:
    return {str: "text", int: "number", type(None): "null"}.get(type(thing), type(thing).__name__)


def recorded() -> dict[str, Any]:
    """What Kafka Connect's own worker answered."""
    found: dict[str, Any] = json.loads(ANSWERS.read_text("utf-8"))
    return found


def record(answers: Mapping[str, Any]) -> None:
    """Keep a run as what is expected; one line for each request."""
    lines = (f" {json.dumps(name)}: {json.dumps(answer, sort_keys=True)}" for name, answer in answers.items())
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def differences(theirs: Any, ours: Any, where: str = "") -> list[tuple[str, Any, Any]]:
    """(place, theirs, ours) of each."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = []
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            place = f"{where} {name}" if where else name
            if name not in ours:
                found.append((place, theirs[name], "absent"))
            elif name not in theirs:
                found.append((place, "absent", ours[name]))
            else:
                found += differences(theirs[name], ours[name], place)
        return found
    return [] if theirs == ours else [(where, theirs, ours)]
