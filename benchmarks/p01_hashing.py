"""P1: homes of a column of keys, against the library's own murmur2 called key by key."""

from __future__ import annotations

import os
from statistics import median

from .harness.bench import Bench
from .harness.measure import Goal, Measure, Result


class Hashing(Measure):
    """Ours: `home_column` over an Arrow column. Theirs: librdkafka's C murmur2 partitioner, called for each key."""

    id = "P1"
    title = "where keys live: hashing a column of 16-byte keys"
    theirs = "librdkafka's murmur2 partitioner, per key"
    needs = ("pyarrow", "numba")

    def run(self, bench: Bench) -> Result:
        """Both on the same buffers, in compiled loops on one core."""
        import numpy as np
        import pyarrow as pa
        from keyorder import Layout
        from keyorder.connector.arrow.hashing import home_column
        from keyorder.partitioner.hashing import HASHES

        from .calling import partition_each

        count = 500_000 if bench.quick else 5_000_000
        rounds = 4 if bench.quick else 10
        data = os.urandom(16 * count)
        ends = np.arange(count + 1, dtype=np.int32) * 16
        keys = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])
        layout = Layout(4, 4)
        each = partition_each(4)
        if each(keys).tolist() != home_column(layout, keys).tolist():
            raise RuntimeError("the two disagree")

        def ours() -> dict[str, float]:
            meter = bench.meter()
            for _ in range(rounds):
                home_column(layout, keys)
            return {"rate": rounds * count / meter.stop().wall / 1e6}

        def theirs() -> dict[str, float]:
            meter = bench.meter()
            for _ in range(rounds):
                each(keys)
            return {"rate": rounds * count / meter.stop().wall / 1e6}

        def under(hash_name: str) -> float:
            placed = Layout(4, 4, hash_name)
            home_column(placed, keys)
            meter = bench.meter()
            for _ in range(rounds):
                home_column(placed, keys)
            return rounds * count / meter.stop().wall / 1e6

        pairs = bench.pairs(ours, theirs)
        rates = {name: median(under(name) for _ in range(3)) for name in HASHES}
        rate = pairs.reported("rate", "M keys/s")
        assert rate.ratio is not None
        ratio, speed = rate.ratio.median, rate.ours.median
        return Result(
            data={"keys": count, "key bytes": 16, "partitions": 4},
            repeats=len(pairs.ours),
            figures=[rate, pairs.cpu()],
            goals=[
                Goal("as fast as the library's own, per key", f"{ratio:.2f}", ratio >= 1.0),
                Goal("50 M keys a second on one core", f"{speed:.0f} M", speed >= 50),
                Goal("the same by every hash", f"{min(rates.values()):.0f} M", min(rates.values()) >= 50),
            ],
            notes=[
                "By hash: " + ", ".join(f"{name} {rate:.0f} M keys/s" for name, rate in rates.items()) + ".",
                "Theirs is called from a compiled loop: the price of a Python call for each key is not in it.",
            ],
        )


MEASURE = Hashing()
