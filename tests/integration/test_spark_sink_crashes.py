"""The sink is exactly once wherever a process of it is killed."""

from __future__ import annotations

from random import Random

import pytest
from sink_runner import PARTITIONS, crash_and_recover
from spark_sink_model import BATCHES, ModelSpark

from tidelog.testing import FakeCluster

pytestmark = [pytest.mark.slow, pytest.mark.chaos]


@pytest.mark.parametrize("is_after", [False, True])
def test_batch_is_committed_once_after_a_crash_at_any_command(is_after: bool) -> None:
    commands, crashed = 1, True
    while crashed:
        with FakeCluster() as fake:
            fake.create_topic("t", partitions=PARTITIONS)
            crashed = crash_and_recover(fake, commands, is_after=is_after)
        commands += 1
    assert commands > 15


def test_every_batch_is_committed_once_in_many_histories() -> None:
    for seed in range(2_000):
        spark = ModelSpark(Random(seed))
        spark.run_until(BATCHES)
        spark.check()
