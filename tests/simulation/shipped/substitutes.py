"""Which modules the product gets in place of real ones: imported by its own modules alone, and by tenacity's.

Python takes `__import__` from the builtins of the importing module. So the loader gives the product's modules builtins of
their own, and nothing else in this interpreter sees a simulated module.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.machinery
import os
import random
import socket
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from simulation.shipped import primitives
from simulation.shipped.mutants import Patches, patched
from simulation.shipped.scheduler import here, monotonic, sleep, task_here

_PACKAGES = ("keyorder", "tenacity")
# 2027-01-01, about.
EPOCH_S = 1_800_000_000.0


def _copy(module: ModuleType, **others: Any) -> ModuleType:
    made = ModuleType(module.__name__)
    made.__dict__.update({name: value for name, value in vars(module).items() if name != "__builtins__"})
    made.__dict__.update(others)
    return made


def _wall() -> float:
    return EPOCH_S + here().now


def _random() -> ModuleType:
    def draw(name: str, *args: Any, **named: Any) -> Any:
        return getattr(here().rng, name)(*args, **named)

    names = ("random", "uniform", "randrange", "randint", "choice", "choices", "sample", "shuffle", "getrandbits")
    return _copy(random, **{name: partial(draw, name) for name in names})


def modules(client: Mapping[str, ModuleType]) -> dict[str, ModuleType]:
    """By name. client: `confluent_kafka` and `confluent_kafka.admin`."""
    return {
        "threading": primitives.module(),
        "concurrent.futures": primitives.futures(),
        "time": _copy(
            time,
            sleep=sleep,
            clock_gettime=monotonic,
            monotonic=monotonic,
            perf_counter=monotonic,
            time=_wall,
            time_ns=lambda: int(_wall() * 1e9),
        ),
        "random": _random(),
        "uuid": _copy(uuid, uuid4=lambda: uuid.UUID(int=here().rng.getrandbits(128), version=4)),
        "os": _copy(os, getpid=lambda: task_here().process.number),
        "socket": _copy(socket, gethostname=lambda: "host"),
        **client,
    }


class _Loader(importlib.abc.Loader):
    def __init__(self, beneath: Any, finder: Finder) -> None:
        self._beneath, self._finder = beneath, finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._beneath.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        code = self._beneath.get_code(module.__name__)
        path = str(Path(module.__file__ or "").resolve())
        if any(path.endswith("/" + file) for file in self._finder.patches):
            code = compile(patched(self._beneath.get_source(module.__name__), path, self._finder.patches), path, "exec")
        if code is not None:
            module.__dict__["__builtins__"] = self._finder.builtins
            exec(code, module.__dict__)

    def get_source(self, name: str) -> Any:
        """For tracebacks."""
        return self._beneath.get_source(name)


class Finder(importlib.abc.MetaPathFinder):
    """Loads the product with its substitutes. Installed before the product is imported for the first time."""

    def __init__(self, substitutes: Mapping[str, ModuleType], patches: Patches) -> None:
        self._substitutes, self.patches = substitutes, patches
        self.builtins = {**vars(builtins), "__import__": self._import}

    def install(self) -> None:
        """From now on."""
        early = [name for name in sys.modules if name.split(".")[0] in _PACKAGES]
        if early:
            raise RuntimeError(f"imported before their substitutes: {early[:5]}")
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As importlib asks."""
        if name.split(".")[0] not in _PACKAGES:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "get_code"):
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        if level == 0 and name in self._substitutes:
            return self._substitutes[name]
        return builtins.__import__(name, globals, locals, fromlist, level)
