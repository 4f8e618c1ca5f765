"""Kafka's jars in the user's cache folder: fetched once, verified by checksum before each use."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests
import tenacity

from .errors import ChecksumError, DownloadError
from .https import session
from .repository import kafka_dir, repository_url
from .versions import KafkaLock, LockedJar

Progress = Callable[[int, int], None]
"""Called with (bytes there, bytes needed) while jars arrive, from several threads, one call at a time."""

_PARALLEL = 4
_ATTEMPTS = 4
_CHUNK = 1 << 16
# Seconds to connect, and seconds between two pieces of an answer.
_TIMEOUT = (15, 60)


def jar_paths(lock: KafkaLock, folder: Path | None = None) -> list[Path]:
    """Where the jars of `lock` are kept, in class path order, present or not."""
    base = folder or kafka_dir(lock.version)
    return [base / "libs" / jar.name for jar in lock.jars]


def ensure_jars(lock: KafkaLock, folder: Path | None = None, progress: Progress | None = None) -> list[Path]:
    """All jars of `lock`, verified; the missing and the damaged are fetched. Returns the class path.

    Safe when two processes do it at once: each writes names of its own and renames, and a rename
    replaces a jar by an equal one. A second call resumes where a broken one left.
    """
    paths = jar_paths(lock, folder)
    wanted = list(zip(lock.jars, paths, strict=True))
    missing = [(jar, path) for jar, path in wanted if not _is_good(jar, path)]
    if not missing:
        return paths
    url = repository_url()
    counter = _Counter(lock.size - sum(jar.size for jar, _ in missing), lock.size, progress)
    for _, path in missing:
        path.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="keyorder-jars") as pool:
        fetched = [pool.submit(_fetch, f"{url}/{jar.path}", jar, path, counter) for jar, path in missing]
        try:
            for each in fetched:
                each.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return paths


class _Counter:
    """Adds up the bytes of all downloads for one progress callback."""

    def __init__(self, there: int, needed: int, progress: Progress | None) -> None:
        self._lock, self._there, self._needed, self._progress = threading.Lock(), there, needed, progress
        self.add(0)

    def add(self, count: int) -> None:
        with self._lock:
            self._there += count
            if self._progress is not None:
                self._progress(self._there, self._needed)


def _is_good(jar: LockedJar, path: Path) -> bool:
    try:
        if path.stat().st_size != jar.size:
            return False
        with path.open("rb") as file:
            digest = hashlib.sha256()
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except FileNotFoundError:
        return False
    return digest.hexdigest() == jar.sha256


def _fetch(url: str, jar: LockedJar, path: Path, counter: _Counter) -> None:
    """Fetch one jar with retries. The last failure is raised as DownloadError or ChecksumError."""
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        wait=tenacity.wait_random_exponential(multiplier=0.3, max=5),
        retry=tenacity.retry_if_exception(_may_pass),
        reraise=True,
    )
    try:
        retrying(_fetch_once, url, jar, path, counter)
    except (requests.RequestException, OSError) as problem:
        raise DownloadError(f"cannot fetch {jar.name}: {problem}") from problem


def _may_pass(problem: BaseException) -> bool:
    if isinstance(problem, requests.HTTPError) and problem.response is not None:
        # 404 and its kin stay as they are; 429 and the server's own faults may pass.
        return problem.response.status_code == 429 or problem.response.status_code >= 500
    return isinstance(problem, (requests.RequestException, ChecksumError))


def _fetch_once(url: str, jar: LockedJar, path: Path, counter: _Counter) -> None:
    digest, received = hashlib.sha256(), 0
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with (
            os.fdopen(handle, "wb") as file,
            session() as https,
            https.get(url, stream=True, timeout=_TIMEOUT) as answer,
        ):
            answer.raise_for_status()
            for chunk in answer.iter_content(_CHUNK):
                received += len(chunk)
                counter.add(len(chunk))
                file.write(chunk)
                digest.update(chunk)
                # A wrong answer may have no end: stop at the size that was locked.
                if received > jar.size:
                    break
        if digest.hexdigest() != jar.sha256:
            raise ChecksumError(f"{jar.name} from {url} has sha256 {digest.hexdigest()}, but {jar.sha256} is locked")
        # mkstemp makes files for the owner alone; the cache may be one for several users.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        counter.add(-received)
        Path(temporary).unlink(missing_ok=True)
        raise
