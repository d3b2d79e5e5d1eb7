"""Kafka's own transforms and predicates, and ours in Spark, on the same random records.

The two chains that `tests/integration/test_connect_transforms.py` compares with a recording are recorded here:
``TIDELOG_REWRITE_RECORDINGS=1`` writes it anew.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from compat.jars import QUICK_JAVA, Unavailable, java, transforms_class_path
from connect_cases import chains, random_case
from connect_records import differences, outcomes
from pyspark.sql import SparkSession

import tidelog.spark

pytestmark = [pytest.mark.compat, pytest.mark.spark]

RECORDING = Path(__file__).parent.parent / "data" / "connect_transforms.json"
SEEDS = int(os.environ.get("TIDELOG_CONNECT_SEEDS", "40"))
_NEEDS_COMPAT = pytest.mark.skipif("TIDELOG_COMPAT" not in os.environ, reason="takes minutes: make compat runs it")


def kafkas_outcomes(cases: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Return the outcomes of each case's records in Kafka's transforms."""
    try:
        command = [java(), *QUICK_JAVA, "-cp", transforms_class_path(), "TransformRecords"]
    except Unavailable as missing:
        pytest.skip(str(missing))
    done = subprocess.run(command, input="\n".join(map(json.dumps, cases)), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = tidelog.spark.session("transforms", "local[1]", {"spark.ui.enabled": "false"})
    yield session
    session.stop()


def test_recorded_outcomes_are_those_of_kafka() -> None:
    recorded = kafkas_outcomes(chains())
    if os.environ.get("TIDELOG_REWRITE_RECORDINGS"):
        RECORDING.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")

    assert json.loads(RECORDING.read_text()) == recorded


@_NEEDS_COMPAT
@pytest.mark.timeout(1200)
def test_random_records_are_transformed_as_by_kafka(spark: SparkSession) -> None:
    cases = [random_case(seed) for seed in range(SEEDS)]
    kafkas = kafkas_outcomes(cases)

    found = [
        difference
        for case, kafka in zip(cases, kafkas, strict=True)
        for difference in differences(case, outcomes(spark, [case])[0], kafka)
    ]

    assert found == []
