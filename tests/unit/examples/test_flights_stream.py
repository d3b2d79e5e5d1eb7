"""The report of the demo's stream: one line per micro-batch with rows."""

from __future__ import annotations

from typing import Any

from examples.flights.stream import MicroBatch, Tally


def progress(number: int, rows: int, milliseconds: int = 500) -> dict[str, Any]:
    return {"batchId": number, "numInputRows": rows, "durationMs": {"triggerExecution": milliseconds}}


def test_tally_counts_each_batch_with_rows_once() -> None:
    tally = Tally()
    reported = [progress(0, 0), progress(1, 100), progress(1, 100), progress(2, 0), progress(3, 50)]
    added = [tally.add(each, acknowledged=400) for each in reported]
    first, second = MicroBatch(1, 100, 0.5, 100, 300), MicroBatch(3, 50, 0.5, 150, 250)
    assert added == [None, first, None, None, second]
    assert tally.batches == [first, second]


def test_batch_that_has_read_unacknowledged_rows_is_not_behind() -> None:
    batch = Tally().add(progress(0, 100), acknowledged=90)
    assert batch is not None
    assert batch.behind == 0


def test_line_of_a_batch_is_aligned() -> None:
    lines = [
        str(MicroBatch(7, 1, 0.25, 1, 0)),
        str(MicroBatch(123, 336_776, 12.5, 336_776, 100_000)),
    ]
    assert lines == [
        "micro-batch   7:       1 rows in  0.25 s (      4 rows/s),       0 behind",
        "micro-batch 123: 336,776 rows in 12.50 s ( 26,942 rows/s), 100,000 behind",
    ]
