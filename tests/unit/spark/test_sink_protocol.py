"""Every batch of a sink is committed whole and once, whatever is killed, late, old or still running after its end."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from spark_sink_model import BATCHES, ModelSpark


@settings(max_examples=25, deadline=None)
@given(st.integers(min_value=0))
def test_every_batch_is_committed_once_whatever_is_killed(seed: int) -> None:
    spark = ModelSpark(Random(seed))
    spark.run_until(BATCHES)
    spark.check()
