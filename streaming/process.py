"""What is done once in each Python process that Spark starts for a source or a sink."""

from __future__ import annotations

import functools
import gc


@functools.cache
def spare_loaded_objects() -> None:
    """Take what this process has loaded by now out of the garbage collector's sight.

    Spark's worker collects after every task, and a pass over all that NumPy, Arrow and Numba have loaded takes longer
    than a small batch. What is left out was imported, or lives as long as the process.
    """
    gc.freeze()
