"""Spark Structured Streaming source and sink."""
