"""A query on a node in memory copies each record once and in order after a crash at each step of a micro-batch."""

from __future__ import annotations

import pytest
from query_steps import STEPS
from sink_runner import PARTITIONS, Crash, open_ids
from stepped_query import SteppedQuery

from tidelog.testing import FakeCluster
from tidelog_foundation.records import RecordBatchBuilder

ROWS = 3


def append(fake: FakeCluster, first: int) -> None:
    for partition in range(PARTITIONS):
        builder = RecordBatchBuilder()
        for number in range(first, first + ROWS):
            builder.append(None, str(number).encode(), (), 0)
        fake.append("in", partition, builder.build())


def test_query_copies_each_record_once_and_in_order_after_a_crash_at_each_step() -> None:
    with FakeCluster() as fake:
        for topic in ("in", "t"):
            fake.create_topic(topic, partitions=PARTITIONS)
        query = SteppedQuery(fake, "in", "t")
        for number, step in enumerate(STEPS):

            def crash(reached: str, step: str = step) -> None:
                if reached == step:
                    raise Crash(step)

            append(fake, number * ROWS)
            with pytest.raises(Crash, match=step):
                query.run(crash)
            query.run()
            assert open_ids(fake) == [], step
        for partition in range(PARTITIONS):
            copied = [int(record.value or b"-1") for record in fake.records("t", partition, read_committed=True)]
            assert copied == list(range(len(STEPS) * ROWS))
