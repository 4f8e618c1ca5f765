"""Registers `format("keyorder")`: PySpark looks for `DefaultSource` in every top-level module named `pyspark_*`.

An editable install is one of files (pyproject.toml), which PySpark and mypy find from anywhere. The import hook of
`--config-settings editable_mode=lenient` lists no modules: there `make setup` adds a link to this one.
"""

from keyorder.streaming.data_source import KeyorderDataSource as DefaultSource

__all__ = ["DefaultSource"]
