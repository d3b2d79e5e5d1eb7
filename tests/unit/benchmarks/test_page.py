"""README compares Tidelog with Kafka by the figures that were measured last."""

from __future__ import annotations

import json

from benchmarks.page import KAFKA, README, comparison_with_kafka


def test_comparison_in_readme_has_the_measured_figures() -> None:
    assert comparison_with_kafka(json.loads(KAFKA.read_text())) in README.read_text(), "run python -m benchmarks.page"
