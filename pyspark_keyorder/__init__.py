"""Registers `format("keyorder")`: PySpark looks for `DefaultSource` in every top-level module named `pyspark_*`.

The finder of an ordinary editable install lists no modules, so there PySpark finds this one from the checkout's own folder
only, and mypy not at all. With `--config-settings editable_mode=strict` there are files that both find.
"""

from keyorder.streaming.data_source import KeyorderDataSource as DefaultSource

__all__ = ["DefaultSource"]
