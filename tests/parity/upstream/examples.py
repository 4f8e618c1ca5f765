"""Runs confluent-kafka-python's example programs from a checkout on its clients and on ours: unchanged but for the import.

    PYTHONPATH=tests python tests/parity/upstream/examples.py CHECKOUT            exit code 1 for what nobody expects
    PYTHONPATH=tests python tests/parity/upstream/examples.py CHECKOUT --write    keeps what came of each in results.json

A broker (also with SASL/PLAIN and OAUTHBEARER), a schema registry over HTTP and an identity provider are started for the run.
A program that asks is answered; one that runs until Ctrl-C gets it when it has said what it is to say.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from keyorder.connector import clock
from keyorder.connector.local.cluster import LocalCluster
from keyorder.connector.local.processes import free_ports
from keyorder.connector.local.properties import HOST, ClusterPlan, Node
from rewriting import rewrite_folder
from run import HERE, heard, kept

SECONDS = 180  # of one program, at most
_ASKED_AGAIN = "(Enter name: .*){3}|(>.*){3}"  # for the third record, the first two have been sent
_USER = "alice\nsome street\n7\nblue\n"


@dataclass(frozen=True)
class Program:
    """file: below examples/. arguments: with {names} of what is there. answers: what it reads, after which its input ends if
    `ends`. until: what it says (a pattern) when it may be interrupted; None: it ends by itself. records: what its topic then
    holds, at least. topic: the topic's name, of a program that reads what another has written the writer's.
    """

    file: str
    arguments: str
    topic: str = ""
    answers: str | None = None
    ends: bool = False
    until: str | None = None
    records: int = 0


PROGRAMS = (
    Program("producer.py", "{broker} {topic}", "lines", "one\ntwo\nthree\n", True, None, 3),
    Program("consumer.py", "{broker} {topic} {topic}", "lines", until="three"),
    Program("consumer.py", "-T 500 {broker} {topic}-t {topic}", "lines", until="msg_cnt"),
    Program("get_watermark_offsets.py", "{broker} {topic} {topic}", "lines"),
    Program("eos_transactions.py", "-b {broker} -t {topic} -o {topic}-out -g {topic}-eos", "lines"),
    Program("context_manager_example.py", "{broker}"),
    Program("asyncio_example.py", "{broker} {topic}", "asyncio", until="Produced to", records=10),
    Program("asyncio_avro_producer.py", "-b {broker} -s {registry} -t {topic}", "asyncio-avro", records=1),
    Program("avro_producer.py", "-b {broker} -s {registry} -t {topic}", "avro", _USER * 2, until=_ASKED_AGAIN, records=2),
    Program("avro_consumer.py", "-b {broker} -s {registry} -t {topic} -g {topic}", "avro", until="name: alice"),
    Program("json_producer.py", "-b {broker} -s {registry} -t {topic}", "json", _USER * 2, until=_ASKED_AGAIN, records=2),
    Program("json_consumer.py", "-b {broker} -s {registry} -t {topic} -g {topic}", "json", until="name: alice"),
    Program(
        "protobuf_producer.py", "-b {broker} -s {registry} -t {topic}", "protobuf", "alice\n7\nblue\n" * 2, True, None, 2,
    ),
    Program("protobuf_consumer.py", "-b {broker} -s {registry} -t {stock_topic} -g {topic}", "protobuf", until="name: alice"),
    Program(
        "sasl_producer.py", "-b {plain} -m PLAIN -u keyorder -s secret -t {topic}",
        "sasl", "k1|v1\nk2|v2\n", until=_ASKED_AGAIN, records=2,
    ),
    Program(
        "oauth_producer.py",
        "-b {oauth} -t {topic} --client me --secret secret --token-url {identity} --scopes kafka",
        "oauth", "k1|v1\nk2|v2\n", until=_ASKED_AGAIN, records=2,
    ),
)  # fmt: skip
LEFT_OUT = {
    "share_consumer*.py": "nothing to replace: there is no share consumer here",
    "adminapi*.py, oauth_schema_registry.py, schema_registry_imds_azure.py": "nothing to replace: no producer or consumer",
    "*_encryption.py": "needs a key management service",
    "confluent_cloud.py, oauth_oidc_ccloud*.py": "needs Confluent Cloud or the identity service of a cloud",
    "fips/*.py": "needs brokers with FIPS certificates",
}


@contextmanager
def identity_provider() -> Iterator[str]:
    """Gives unsecured tokens for an hour; its URL."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            now = clock.wall_ms() // 1000
            parts = ({"alg": "none"}, {"sub": "me", "iat": now, "exp": now + 3600, "scope": "kafka"})
            text = (
                ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
                + "."
            )
            body = json.dumps({"access_token": text, "expires_in": 3600}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer((HOST, 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{HOST}:{server.server_port}/token"
    server.shutdown()
    server.server_close()


def cluster() -> tuple[LocalCluster, dict[str, str]]:
    """A broker with three ways in, and their addresses by name."""
    plain, oauth = free_ports(2)
    module = "org.apache.kafka.common.security"

    def listeners(plan: ClusterPlan, node: Node) -> Mapping[str, str]:
        ways = f"CLIENT://{HOST}:{node.port},PLAIN://{HOST}:{plain},OAUTH://{HOST}:{oauth}"
        return {
            "listeners": f"{ways},CONTROLLER://{HOST}:{node.controller_port}",
            "advertised.listeners": ways,
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,PLAIN:SASL_PLAINTEXT,OAUTH:SASL_PLAINTEXT",
            "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.plain.plain.sasl.jaas.config": f'{module}.plain.PlainLoginModule required user_keyorder="secret";',
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oauth.oauthbearer.sasl.jaas.config": f"{module}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";',
        }

    return LocalCluster(node_properties=listeners), {"plain": f"{HOST}:{plain}", "oauth": f"{HOST}:{oauth}"}


def outcome(program: Program, folder: Path, kind: str, there: Mapping[str, str]) -> str:
    """Run it: "runs", or what it said last."""
    environment = {**os.environ, "KEYORDER_STAND_INS": kind, "PYTHONPATH": str(HERE), "PYTHONUNBUFFERED": "1"}
    environment.pop("BROKERS", None)
    arguments = program.arguments.format(**there).split()
    log = folder / "said"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, program.file, *arguments], cwd=folder, env=environment,
            stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write((program.answers or "").encode())
        process.stdin.flush()
        if program.ends or program.answers is None:
            process.stdin.close()
        interrupted, deadline = False, clock.now() + SECONDS
        while clock.now() < deadline:
            try:
                process.wait(0.2)
                break
            except subprocess.TimeoutExpired:
                if program.until is not None and not interrupted and said_so(program, log.read_text(errors="replace")):
                    interrupted = True
                    process.send_signal(signal.SIGINT)
        else:
            process.kill()
            process.wait()
        process.stdin.close()
        text = log.read_text(errors="replace")
    missed = program.until is not None and not said_so(program, text)
    if process.returncode or missed:
        return f"exit code {process.returncode}: {(text.strip().splitlines() or [''])[-1][:200]}"
    if program.records:
        count = stored(there["broker"], there["topic"])
        if count < program.records:
            return f"{count} records of {program.records}"
    return "runs"


def said_so(program: Program, output: str) -> bool:
    return re.search(program.until or "", output, re.DOTALL) is not None


def stored(broker: str, topic: str) -> int:
    """How far the topic's logs go, over all partitions."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker, "group.id": "count"})
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    total = sum(
        consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, p), timeout=60)[1] for p in partitions
    )
    consumer.close()
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("-k", default="", help="only programs with this in their name")
    parser.add_argument("--write", action="store_true", help="keep what came of each in results.json")
    asked = parser.parse_args()
    if not (asked.checkout / "examples" / "producer.py").is_file():
        parser.error(f"{asked.checkout} is no checkout of confluent-kafka-python: it has no examples/producer.py")
    programs = [program for program in PROGRAMS if asked.k in program.file]
    if not programs:
        print(f"no example has {asked.k!r} in its name")
        return 0
    from support.schema_registry import SchemaRegistryServer

    heard()
    results: dict[str, dict[str, str]] = {}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="keyorder-examples-")))
        rewrite_folder(asked.checkout / "examples", scratch / "examples")
        broker, ways = cluster()
        stack.enter_context(broker)
        there = {
            **ways,
            "broker": broker.bootstrap_servers,
            "identity": stack.enter_context(identity_provider()),
            "registry": "",
        }
        if any("{registry}" in program.arguments for program in programs):
            registry = SchemaRegistryServer(scratch)
            stack.callback(registry.stop)
            there["registry"] = registry.url
        admin, run = AdminClient({"bootstrap.servers": there["broker"]}), uuid.uuid4().hex[:6]
        for kind in ("stock", "ours"):
            topics = {program.topic for program in programs if program.topic}
            names = [f"{topic}-{kind}-{run}{end}" for topic in topics for end in ("", "-out")]
            for made in admin.create_topics([NewTopic(name, 1) for name in names]).values():
                made.result(60)
        for program in programs:
            for kind in ("stock", "ours"):
                topic = {"topic": f"{program.topic}-{kind}-{run}", "stock_topic": f"{program.topic}-stock-{run}"}
                came = outcome(program, scratch / "examples", kind, {**there, **topic})
                name = f"{program.file} -T" if program.arguments.startswith("-T") else program.file
                results.setdefault(name, {})[kind] = came
            print(name, results[name], flush=True)
    wrong = [
        program.file
        for program, came in zip(programs, results.values(), strict=True)
        if came != {"stock": "runs", "ours": "runs"}
    ]
    if asked.write:
        kept("examples", results)
    print(f"{len(results)} programs; not as expected: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
