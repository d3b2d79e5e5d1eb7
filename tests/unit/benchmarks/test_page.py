"""README compares Tidelog with Kafka by the figures that were measured last; the page has a place for each table."""

from __future__ import annotations

import json

import pytest

from benchmarks.machine import facts
from benchmarks.page import _TABLES, KAFKA, PAGE, README, comparison_with_kafka, table, with_table


def test_comparison_in_readme_has_the_measured_figures() -> None:
    assert comparison_with_kafka(json.loads(KAFKA.read_text())) in README.read_text(), "run python -m benchmarks.page"


@pytest.mark.parametrize("name", _TABLES)
def test_page_has_a_place_for_each_table(name: str) -> None:
    assert "| measured |" in with_table(PAGE.read_text(), name, "| measured |\n")


def test_table_names_the_interpreters_that_were_compared_instead_of_the_one_that_ran_the_comparison() -> None:
    pythons = "3.12.1 (built with PGO), 3.13.0 (built with neither PGO nor LTO)"

    text = table({"machine": {**facts(quick=True), "pythons": pythons}, "results": []})

    assert f"Python {pythons}, " in text
