"""Two chains of transforms in Spark, against recorded outcomes of Kafka's own transforms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from connect_cases import chains
from connect_records import differences, outcomes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDING = Path(__file__).parent.parent / "data" / "connect_transforms.json"


def test_chains_transform_records_as_recorded_of_kafka(spark: SparkSession) -> None:
    cases = chains()
    ours = outcomes(spark, cases)
    kafkas = json.loads(RECORDING.read_text())

    found = [
        difference
        for case, mine, kafka in zip(cases, ours, kafkas, strict=True)
        for difference in differences(case, mine, kafka)
    ]

    assert found == []
    assert sum("topic" in outcome for outcomes in kafkas for outcome in outcomes) >= 8
