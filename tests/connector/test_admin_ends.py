"""An admin client that is garbage ends wherever Python happens to collect it."""

from __future__ import annotations

import subprocess
import sys

# The garbage collector runs where the answer is told, which is the client's own thread, and finds the client in a cycle.
PROGRAM = """
import gc, threading
from keyorder.connector import admin_ends
from keyorder.connector.refusals import ClusterAdmin

class Cycle:
    pass

def collect(_):
    gc.collect()
    collected.set()

gc.disable()
collected = threading.Event()
cycle = Cycle()
cycle.itself = cycle
cycle.admin = ClusterAdmin({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
answer = cycle.admin.list_consumer_groups(request_timeout=0.5)
answer.add_done_callback(collect)
del cycle
assert collected.wait(60)
print("waiting", len(admin_ends.WAITING))
ClusterAdmin({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
print("waiting", len(admin_ends.WAITING))
"""


def test_a_client_that_is_collected_on_its_own_thread_does_not_abort_the_process() -> None:
    """The client library does that to whoever ends a client there. It ends when the next one is made."""
    done = subprocess.run([sys.executable, "-Ic", PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout.split("\n")) == (0, ["waiting 1", "waiting 0", ""]), done.stderr
