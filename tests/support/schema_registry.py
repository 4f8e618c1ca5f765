"""A real schema registry: Apicurio's, as a process of this machine, all in memory, with Confluent's REST."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from keyorder.connector.local.jars import ensure_jars
from keyorder.connector.local.java import find_java
from keyorder.connector.local.repository import cache_dir
from keyorder.connector.local.versions import KafkaLock, LockedJar
from support.connect_rig import until
from support.unpacking import unpack

_VERSION = "2.6.13.Final"
_ARCHIVE = LockedJar(
    f"io/apicurio/apicurio-registry-app/{_VERSION}/apicurio-registry-app-{_VERSION}-all.tar.gz",
    "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba",
    142_198_683,
)
_LISTENS = re.compile(r"Listening on: (http://127\.0\.0\.1:\d+)")


def _installed() -> Path:
    """The unpacked archive, fetched once and verified by checksum."""
    folder = cache_dir() / f"apicurio-{_VERSION}"
    program = folder / "program"
    if not program.is_dir():
        (archive,) = ensure_jars(KafkaLock(_VERSION, (_ARCHIVE,)), folder)
        unpacked = tempfile.mkdtemp(prefix="unpacked-", dir=folder)
        with tarfile.open(archive) as tar:
            unpack(tar, unpacked)
        try:
            os.rename(unpacked, program)
        except OSError:  # another process was faster
            shutil.rmtree(unpacked)
    return program


class SchemaRegistryServer:
    """A running registry. `url` is what `schema.registry.url` is to be."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "registry.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(find_java().executable), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1",
                 "-Dquarkus.http.port=0", "-jar", f"apicurio-registry-app-{_VERSION}-runner.jar"],
                cwd=_installed(), stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        listens = until(self._listens, lambda: f"the registry listens: {self._log.read_text()[-2000:]}", 120)
        self.url = f"{listens[1]}/apis/ccompat/v7"

    def _listens(self) -> re.Match[str] | None:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        return _LISTENS.search(self._log.read_text())

    def stop(self) -> None:
        """End it; nothing of it stays but the archive."""
        self._process.terminate()
        self._process.wait(120)
