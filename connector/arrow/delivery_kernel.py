"""The compiled delivery callback. To be imported when its symbol is defined: it calls the binding's own callback by name.

A record that was sent from columns carries the address of a counter block, plus 1, as its opaque value; the binding's
own are even addresses. Runs inside poll() and flush(), on any thread, without Python's lock.
"""

from __future__ import annotations

from numba import cfunc, types

from .kernels import murmur2
from .machine import add_atomically, load_i32, load_i64, raise_atomically, store_i64

# A block's words. LOG: the address of the log of failures.
RESOLVED, FAILED, ACKNOWLEDGED, LOG, WORDS = 0, 1, 2, 3, 4
# The log: how many failures so far; then for each the block, the error, the hash of its key (-1: no key), its number + 1.
FAILURE_WORDS, MOST_FAILURES = 4, 4096
SYMBOL = "keyorder_binding_delivery_callback"

_binding = types.ExternalFunction(SYMBOL, types.void(types.int64, types.int64, types.int64))


@cfunc("void(int64, int64, int64)", cache=True)
def on_delivery(client, message, opaque):
    """`dr_msg_cb`: counts what was sent from columns, and passes on all else."""
    block = load_i64(message + 64)
    if block & 1 == 0:
        _binding(client, message, opaque)
        return
    block -= 1
    code = load_i32(message)
    if code == 0:
        # An implicit acknowledgement has no offset: it is below 0.
        raise_atomically(block + 8 * ACKNOWLEDGED, load_i64(message + 56) + 1)
    else:
        log = load_i64(block + 8 * LOG)
        number = add_atomically(log, 1)
        slot = log + 8 * (1 + FAILURE_WORDS * (number % MOST_FAILURES))
        key = load_i64(message + 40)
        store_i64(slot, block)
        store_i64(slot + 8, code)
        store_i64(slot + 16, murmur2(key, load_i64(message + 48)) if key != 0 else -1)
        add_atomically(slot + 24, number + 1 - load_i64(slot + 24))
        add_atomically(block + 8 * FAILED, 1)
    add_atomically(block + 8 * RESOLVED, 1)
