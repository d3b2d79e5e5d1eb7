"""Every batch of a sink is committed whole and once, whatever is killed, late, old or still running after its end."""

from __future__ import annotations

from random import Random

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_sink_model import BATCHES, ModelSpark

from tidelog_spark.sink.journal import Prepared, SinkState
from tidelog_spark.sink.protocol import Attempt, Complete, Completion, Described, commit_batch


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(min_value=0))
def test_every_batch_is_committed_once_whatever_is_killed(seed: int) -> None:
    spark = ModelSpark(Random(seed))
    spark.run_until(BATCHES)
    spark.check()


def test_transaction_that_its_own_driver_has_committed_is_not_missing_when_a_late_task_takes_its_id() -> None:
    """A driver completes its batch in two rounds; a task that goes on after its end begins with an id of the first."""
    attempt, both = Attempt("s", "run", 0), (Prepared("a", 1, 0), Prepared("b", 2, 0))
    owned = SinkState().claimed("run")
    decided = owned.decided("run", 0, both)
    steps = commit_batch(attempt, both)
    first_round = [owned, None, decided, ("a", "b"), both, decided, ("b",)]
    second_round = [Described((), ("a",)), ("b",), both[1:], decided]
    next(steps)
    commands = [steps.send(answer) for answer in (*first_round, *second_round)]
    assert commands[-1] == Complete(("b",), ())
    with pytest.raises(StopIteration) as stop:
        steps.send(())
    assert stop.value.value == Completion(committed=2, aborted=0, ended=())
