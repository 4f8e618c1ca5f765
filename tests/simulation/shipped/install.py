"""Puts the simulated client library beneath the product. To be called before anything of the product is imported."""

from __future__ import annotations

import sys
from types import ModuleType

import confluent_kafka
import confluent_kafka.admin
from simulation.shipped.admin import AdminClient
from simulation.shipped.consumer import Consumer
from simulation.shipped.mutants import patches_of
from simulation.shipped.producer import Producer
from simulation.shipped.substitutes import Finder, modules


def install(mutant: str = "") -> None:
    """The product of this interpreter never meets a broker, a real thread or real time. mutant: the guard that it lacks."""
    library, admin = ModuleType("confluent_kafka"), ModuleType("confluent_kafka.admin")
    library.__dict__.update({n: v for n, v in vars(confluent_kafka).items() if not n.startswith("__")})
    admin.__dict__.update({n: v for n, v in vars(confluent_kafka.admin).items() if not n.startswith("__")})
    admin.__dict__["AdminClient"] = AdminClient
    library.__dict__.update(Consumer=Consumer, Producer=Producer, admin=admin)
    sys.setrecursionlimit(2000)
    Finder(
        modules({"confluent_kafka": library, "confluent_kafka.admin": admin}), patches_of(mutant) if mutant else {}
    ).install()
