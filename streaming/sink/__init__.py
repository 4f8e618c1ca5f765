"""The Spark sink: rows of a batch or a micro-batch become records of managed topics."""
