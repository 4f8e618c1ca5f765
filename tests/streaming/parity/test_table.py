"""docs/spark-parity.md: the table of Spark's own tests is the one that the tests make."""

from __future__ import annotations

from support.spark_suites import PAGE, SUITES, page, shown


def test_each_of_sparks_tests_is_shown_or_has_a_reason() -> None:
    """Not both, and nothing stands for a test that Spark does not have."""
    tests = shown()
    for suite, names in SUITES.items():
        for name, reason in names.items():
            assert ((suite, name) in tests) == (reason is None), (suite, name)
    assert [key for key in tests if key[1] not in SUITES.get(key[0], {})] == []


def test_the_page_is_up_to_date() -> None:
    """`make docs` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page()
