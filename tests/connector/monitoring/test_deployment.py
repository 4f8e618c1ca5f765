"""Units, manifests, compose files and image: what they name exists, and their commands are ones that keyorder takes."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import keyorder
import pytest
import yaml
from keyorder.connector.cli.connecting import read_properties
from keyorder.connector.cli.main import cli
from keyorder.connector.connect.rest.security import listener_of
from keyorder.connector.connect.runtime.launch import Parts

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(keyorder.__path__[0])
DOCKER = ROOT / "docker"
KUBERNETES = DOCKER / "kubernetes"
UNITS = sorted((DOCKER / "systemd").glob("*.service"))
WORKERS = [DOCKER / "monitoring/worker.properties", KUBERNETES / "worker.properties"]
COMPONENT = "app.kubernetes.io/component"
CHECK = ["python3", "-I", "/opt/keyorder/healthcheck.py"]
NUMBER = 1001  # the user of the image


def manifests(*names: str) -> list[dict[str, Any]]:
    """All documents of these files."""
    return [found for name in names for found in yaml.safe_load_all((KUBERNETES / name).read_text()) if found]


def resources() -> list[dict[str, Any]]:
    """What the kustomization applies."""
    return manifests(*yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"])


def of_kind(kind: str, component: str) -> dict[str, Any]:
    """The one resource of this kind that belongs to the component, by its name."""
    (found,) = [
        each
        for each in manifests("controller.yaml", "connect.yaml", "service-monitor.yaml")
        if each["kind"] == kind and each["metadata"]["name"] == f"keyorder-{component}"
    ]
    return found


def parses(words: list[str], files: Path) -> None:
    """Raises for a command or an option that keyorder does not know. Files of settings: those in `files`, by name."""
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group):
        name = rest.pop(0)
        found = command.get_command(click.Context(command), name)
        assert found is not None, name
        command = found
    command.make_context(words[0], [re.sub(r"/etc/keyorder/", f"{files}/", word) for word in rest], obj=None)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that operators bring, and an environment as an image's."""
    monkeypatch.setenv("KEYORDER_BOOTSTRAP_SERVERS", "broker:9092")
    for name in ("client.properties", "worker.properties"):
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize("words", [["controller", "--no-such"], ["topics", "create", "orders"], ["serve"]])
def test_a_wrong_command_is_found(words: list[str], files: Path) -> None:
    """Whatever is wrong with it."""
    with pytest.raises((click.UsageError, AssertionError)):
        parses(words, files)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_a_units_command(unit: Path, files: Path) -> None:
    """As it stands."""
    (command,) = re.findall(r"^ExecStart=/opt/keyorder/bin/keyorder (.*)$", unit.read_text(), re.MULTILINE)
    parses(shlex.split(command), files)


def complaints(unit: Path) -> list[str]:
    """What systemd says of this unit; not what it says of the machine's others."""
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    return [line for line in done.stderr.splitlines() if unit.name in line]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_systemd_takes_a_unit_and_calls_it_hardened(unit: Path, tmp_path: Path) -> None:
    """No key that it does not know; of the ten points of exposure two and a half at most."""
    copied = tmp_path / unit.name
    text = unit.read_text().replace("/opt/keyorder/bin/keyorder", sys.executable)
    copied.write_text(text.replace("ProtectHome", "ProtectHomes"))
    assert len(complaints(copied)) == 1
    copied.write_text(text)
    assert complaints(copied) == []
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=25", str(copied)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("a systemd that judges no files: older than 250")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def dockerfile() -> str:
    """The image's."""
    return (DOCKER / "keyorder/Dockerfile").read_text()


def test_the_images_command(files: Path) -> None:
    """Its health check is that of the manifests; ports are those of the environment; the user is a number."""
    text = dockerfile()
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    parses(json.loads(command), files)
    (check,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", text, re.MULTILINE)
    assert json.loads(check) == CHECK
    assert f"COPY docker/keyorder/healthcheck.py {CHECK[-1]}\n" in text
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE) == [f"{NUMBER}:{NUMBER}"]
    assert re.findall(r"^EXPOSE (.*)", text, re.MULTILINE) == ["9404 8083"]
    assert "KEYORDER_METRICS_PORT=9404" in text


def test_the_images_environment_is_the_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    """KEYORDER_METRICS_HOST and KEYORDER_METRICS_PORT are options of the command; a flag wins."""
    for word in re.findall(r"KEYORDER_METRICS_\w+=\S+", dockerfile()):
        monkeypatch.setenv(*word.split("=", 1))
    monkeypatch.setenv("KEYORDER_BOOTSTRAP_SERVERS", "broker:9092")
    found = cli.get_command(click.Context(cli), "controller")
    assert found is not None
    given = found.make_context("controller", ["--metrics-port", "1"], obj=None).params
    assert (given["metrics_host"], given["metrics_port"]) == ("0.0.0.0", 1)
    assert found.make_context("controller", [], obj=None).params["metrics_port"] == 9404


def test_the_build_context_holds_the_package_and_no_more() -> None:
    """Every folder of the packages, and what pyproject.toml names; all else stays outside, whatever lies about."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {
        name.removeprefix("keyorder.").split(".")[0] for name in project["tool"]["setuptools"]["packages"]
    } - {"keyorder"}  # fmt: skip
    named = {project["project"]["readme"], *project["project"]["license-files"], "pyproject.toml", "py.typed", "*.py"}
    assert lines[0] == "*"
    assert {line[1:] for line in lines[1:-1]} == folders | named | {"docker/keyorder", "wheels"}
    assert lines[-1] == "**/__pycache__"


@pytest.mark.parametrize("component", ["controller", "connect"])
def test_a_deployment_has_no_rights(component: str) -> None:
    """No root, no capability, nothing to write to but /tmp, no token of Kubernetes; ended by hand it may end its work."""
    deployment, account = of_kind("Deployment", component), of_kind("ServiceAccount", component)
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert deployment["spec"]["replicas"] >= 2
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert account["automountServiceAccountToken"] is pod["automountServiceAccountToken"] is False
    rights = pod["securityContext"]
    assert (rights["runAsNonRoot"], rights["runAsUser"], rights["runAsGroup"]) == (True, NUMBER, NUMBER)
    assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
    }  # fmt: skip
    assert {"requests", "limits"} <= container["resources"].keys()
    assert pod["terminationGracePeriodSeconds"] >= 40
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert {each["name"] for each in container["volumeMounts"]} == set(volumes)
    writable = [each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")]
    assert writable == ["/tmp"]


@pytest.mark.parametrize("component", ["controller", "connect"])
def test_what_belongs_to_a_deployment_selects_it(component: str) -> None:
    """Labels, and ports by the names that the container has."""
    template = of_kind("Deployment", component)["spec"]["template"]
    labels = template["metadata"]["labels"]
    (container,) = template["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    service, monitor = of_kind("Service", component), of_kind("ServiceMonitor", component)
    policy = of_kind("NetworkPolicy", component)["spec"]
    assert labels[COMPONENT] == component
    assert of_kind("Deployment", component)["spec"]["selector"]["matchLabels"] == labels
    assert template["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == labels
    assert of_kind("PodDisruptionBudget", component)["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels == policy["podSelector"]["matchLabels"]
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert {end["port"] for end in monitor["spec"]["endpoints"]} == {port["name"] for port in service["spec"]["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == ports
    assert {port["port"] for each in policy["ingress"] for port in each["ports"]} == ports


def test_the_controllers_pod(files: Path) -> None:
    """Its command, and probes of paths that are served at the port of its environment."""
    (container,) = of_kind("Deployment", "controller")["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    parses(container["args"], files)
    (port,) = container["ports"]
    assert str(port["containerPort"]) == environment["KEYORDER_METRICS_PORT"]
    for probe, path in (("livenessProbe", "/healthz"), ("startupProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    (brokers,) = of_kind("NetworkPolicy", "controller")["spec"]["egress"][1]["ports"]
    assert environment["KEYORDER_BOOTSTRAP_SERVERS"].endswith(f":{brokers['port']}")


def test_the_workers_pod(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its command, its settings with the variables of its environment, and probes by the image's own check."""
    (container,) = of_kind("Deployment", "connect")["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each for each in container["env"]}
    text = (KUBERNETES / "worker.properties").read_text()
    (port,) = container["ports"]
    parses(container["args"], files)
    assert set(re.findall(r"\$\{env:(\w+)\}", text)) <= set(environment)
    assert read_properties(text)["listeners"].endswith(f":{port['containerPort']}")
    assert f":{port['containerPort']}/health" in environment["KEYORDER_HEALTH_URL"]["value"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["exec"]["command"] == CHECK
    secret = environment["KEYORDER_REST_TOKEN"]["valueFrom"]["secretKeyRef"]
    (endpoint,) = of_kind("ServiceMonitor", "connect")["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == secret
    (generated,) = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["configMapGenerator"]
    volumes = of_kind("Deployment", "connect")["spec"]["template"]["spec"]["volumes"]
    assert {"name": generated["name"]} in [each.get("configMap") for each in volumes]
    assert [(KUBERNETES / name).is_file() for name in generated["files"]] == [True]


@pytest.mark.parametrize("file", WORKERS, ids=lambda path: path.parent.name)
def test_a_workers_settings(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken as they stand, with a listener that others reach by a token; none is known to no client."""
    for name in ("KEYORDER_REST_TOKEN", "POD_IP", "HOSTNAME"):
        monkeypatch.setenv(name, f"value-of-{name}")
    parts = Parts.of(read_properties(file.read_text()), True)
    listener = listener_of(parts.parsed)
    assert listener is not None
    assert (listener.host, listener.port, listener.token) == ("0.0.0.0", 8083, "value-of-KEYORDER_REST_TOKEN")
    assert "value-of-" in parts.parsed["rest.advertised.url"]


def test_the_manifests_are_what_kubernetes_takes() -> None:
    """By the schemas of its API, which know every field. No secret stands in any."""
    judge = pytest.importorskip("kubernetes_validate", reason="no schemas of Kubernetes here: kubernetes-validate")
    found = resources()
    assert {each["kind"] for each in found} == {
        "ServiceAccount", "Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"
    }  # fmt: skip
    for each in found:
        judge.validate(each, judge.latest_version(), strict=True)
    wrong = json.loads(json.dumps(of_kind("Deployment", "connect")).replace("runAsNonRoot", "runAsNoRoot"))
    with pytest.raises(judge.ValidationError):
        judge.validate(wrong, judge.latest_version(), strict=True)


def compose() -> dict[str, Any]:
    """The file with everything."""
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose-full.yaml").read_text())
    return found


def brokers() -> dict[str, Any]:
    """The services of the file that it includes."""
    (included,) = compose()["include"]
    found: dict[str, Any] = yaml.safe_load((DOCKER / included).read_text())["services"]
    return found


def addresses(value: str) -> Iterator[str]:
    """The hosts of a list of host:port."""
    return (server.rpartition(":")[0] for server in value.split(","))


def test_what_the_compose_file_names(files: Path) -> None:
    """Mounted files are there, commands are keyorder's, services that are waited for exist and have a health check."""
    services = compose()["services"]
    for name, service in services.items():
        mounts = dict(mount.split(":")[:2] for mount in service.get("volumes", ()))
        assert [source for source in mounts if not (DOCKER / source).is_file()] == [], name
        for other, on in service.get("depends_on", {}).items():
            assert on == {"condition": "service_healthy"}
            assert "healthcheck" in brokers()[other]
        if "command" in service:
            parses(service["command"], files)
            assert "/etc/keyorder/worker.properties" in mounts.values()
        if "entrypoint" in service:
            assert service["entrypoint"][-1] in mounts.values()
        if service["image"].startswith("keyorder:"):
            assert (service["read_only"], service["cap_drop"], service["init"]) == (True, ["ALL"], True)
            assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
            assert set(addresses(service["environment"]["KEYORDER_BOOTSTRAP_SERVERS"])) == set(brokers())
        else:
            assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), "an image without a version"
        # Nothing here has a login that deserves the name: all ports are this machine's alone.
        assert [port for port in service.get("ports", ()) if not port.startswith("127.0.0.1:")] == []


def test_the_compose_file_and_prometheus_agree() -> None:
    """Targets are services at ports at which they serve; Prometheus has the token of Connect's REST."""
    services = compose()["services"]
    jobs = {
        job["job_name"]: job
        for job in yaml.safe_load((DOCKER / "monitoring/prometheus.yaml").read_text())["scrape_configs"]
    }
    targets = {t for job in jobs.values() for found in job["static_configs"] for t in found["targets"]}
    assert targets == {"controller:9404", "connect:8083", "load:9405"}
    assert '"keyorder.metrics.port": 9405' in (DOCKER / "monitoring/load.py").read_text()
    token = services["connect"]["environment"]["KEYORDER_REST_TOKEN"]
    assert jobs["connect"]["authorization"] == {"credentials": token}
    settings = read_properties((DOCKER / "monitoring/worker.properties").read_text())
    assert settings["listeners"] == "http://0.0.0.0:8083"
    assert set(addresses(settings["bootstrap.servers"])) == set(brokers())


def test_the_compose_file_and_grafana_agree() -> None:
    """The dashboard is mounted where Grafana looks for it, and asks the source that is provisioned."""
    mounts = dict(mount.split(":")[:2] for mount in compose()["services"]["grafana"]["volumes"])
    (provider,) = yaml.safe_load((DOCKER / "monitoring/grafana/dashboards.yaml").read_text())["providers"]
    assert mounts["./monitoring/dashboard.json"].startswith(provider["options"]["path"] + "/")
    (source,) = yaml.safe_load((DOCKER / "monitoring/grafana/datasource.yaml").read_text())["datasources"]
    host, port = source["url"].removeprefix("http://").split(":")
    assert any(published.endswith(f":{port}") for published in compose()["services"][host]["ports"])
    board = json.loads((DOCKER / "monitoring/dashboard.json").read_text())
    variables = {each["name"]: each for each in board["templating"]["list"]}
    assert variables["source"]["query"] == source["type"]
    assert {panel["datasource"]["uid"] for panel in board["panels"] if "datasource" in panel} == {"${source}"}


@pytest.mark.skipif(
    shutil.which("docker") is None
    or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0,
    reason="no Docker Compose on this machine",
)
@pytest.mark.parametrize("name", sorted(path.name for path in DOCKER.glob("compose*.yaml")))
def test_compose_takes_the_file(name: str) -> None:
    """By its own parser; no engine is asked."""
    done = subprocess.run(
        ["docker", "compose", "--file", str(DOCKER / name), "config", "--quiet"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_loads_code_is_importable_as_what_it_uses() -> None:
    """What it imports of keyorder exists."""
    names = re.findall(r"^from keyorder import (.*)$", (DOCKER / "monitoring/load.py").read_text(), re.MULTILINE)
    found = importlib.import_module("keyorder")
    assert [name for line in names for name in line.split(", ") if not hasattr(found, name)] == []
