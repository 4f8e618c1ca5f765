"""The image of docker/keyorder/Dockerfile, built from this checkout where a base image and packages are to be had."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from docker.errors import APIError, BuildError, ImageNotFound
from support.wheel import ROOT, copy_source

from docker import DockerClient

DOCKERFILE = ROOT / "docker/keyorder/Dockerfile"
_PYTHON_OF_DEBIAN = """
FROM debian:bookworm-slim
RUN apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv ca-certificates
"""


def keyorder_image(client: DockerClient, tag: str) -> str:
    """Build it; returns its tag. Packages come from this machine's index, so that the build itself needs none.

    Skips the test where no base image or no packages can be had.
    """
    base = _base(client)
    with tempfile.TemporaryDirectory() as folder:
        context = copy_source(Path(folder))
        shutil.copytree(ROOT / "docker/keyorder", context / "docker/keyorder")
        shutil.copy(ROOT / ".dockerignore", context)
        (context / "client.properties").write_text("sasl.password=not-for-an-image\n")
        _download(client, base, context / "wheels")
        arguments = {"BASE": base, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/src/wheels", "VERSION": "0.0.1"}
        client.images.build(
            path=str(context), dockerfile="docker/keyorder/Dockerfile", tag=tag, rm=True, buildargs=arguments
        )
    return tag


def _base(client: DockerClient) -> str:
    """The Dockerfile's own, or Debian's Python where there is no registry."""
    (own,) = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE.read_text(), re.MULTILINE)
    try:
        client.images.get(own)
        return str(own)
    except ImageNotFound:
        pass
    try:
        client.images.pull(own)
        return str(own)
    except APIError:
        pass  # no registry within reach
    tag = "keyorder-python:bookworm"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Dockerfile").write_text(_PYTHON_OF_DEBIAN)
        try:
            client.images.build(path=folder, tag=tag, rm=True)
        except (APIError, BuildError) as error:
            pytest.skip(f"no base image with Python within reach: {error}")
    return tag


def _download(client: DockerClient, base: str, wheels: Path) -> None:
    """What the image installs, for the Python of the base image."""
    entry = ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    version = client.containers.run(base, entry, entrypoint="python3", remove=True).decode().strip()
    machine = client.info()["Architecture"]
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in (17, 24, 26, 27, 28)] + [f"manylinux2014_{machine}"]
    options = ["--only-binary", ":all:", "--python-version", version, "--dest", str(wheels)]
    options += [word for platform in platforms for word in ("--platform", platform)]
    done = subprocess.run(
        [sys.executable, "-Im", "pip", "download", "--quiet", *options, *_needs(), "setuptools>=77", "wheel"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no packages for Python {version} within reach: {done.stderr[-500:]}")


def _needs() -> list[str]:
    """The requirements of keyorder[metrics,connect] as pyproject.toml states them."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *extras["metrics"], *extras["connect"]]
    return [need for need in named if not need.startswith("keyorder")]
