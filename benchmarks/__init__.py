"""Benchmarks: one file per measure, on one harness. `make bench`; method in docs/benchmarks.md."""
