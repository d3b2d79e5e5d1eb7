"""``tidelog verify replicas``: what counts as the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from typer.testing import Result

from tidelog.testing import FakeCluster
from tidelog_cli.replicas.comparison import Batch, Difference, batches_of, compare_batches, compare_records
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import RecordBatchBuilder, assign_offsets


def batch(base_offset: int, *values: bytes | None, epoch: int = 0) -> bytes:
    """Return a batch whose records have the values in order; None leaves an offset out, as compaction does."""
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(b"key", value or b"gone", timestamp_ms=1)
    data = bytearray(builder.build())
    assign_offsets(data, base_offset, epoch)
    return bytes(data)


def batches(*data: bytes, end: int = 100) -> Iterator[Batch]:
    return batches_of(b"".join(data), end)


def differences(steps: Iterable[Difference | int]) -> list[Difference]:
    return [step for step in steps if isinstance(step, Difference)]


def test_batches_of_a_fetch_are_whole_and_end_by_the_end() -> None:
    data = batch(0, b"a", b"b") + batch(2, b"c") + batch(3, b"d")
    assert [(b.base_offset, b.next_offset) for b in batches(data, end=3)] == [(0, 2), (2, 3)]
    assert [b.base_offset for b in batches(data[:-1])] == [0, 2]


def test_replicas_with_the_same_batches_are_the_same() -> None:
    data = (batch(0, b"a", b"b"), batch(2, b"c"))
    assert list(compare_batches(batches(*data), batches(*data))) == [1, 2]
    assert list(compare_batches(iter(()), iter(()))) == []


@pytest.mark.parametrize(
    ("leader", "follower", "offset", "text"),
    [
        (
            (batch(0, b"a"), batch(1, b"b")),
            (batch(0, b"a"), batch(1, b"x")),
            1,
            "the batches of the offsets 1-1 differ",
        ),
        ((batch(0, b"a"),), (batch(0, b"a", epoch=1),), 0, "the batches of the offsets 0-0 differ"),
        ((batch(0, b"a", b"b"),), (batch(0, b"a"), batch(1, b"b")), 0, "has a batch of 0-1, the follower one of 0-0"),
        ((batch(0, b"a"), batch(1, b"b")), (batch(0, b"a"),), 1, "the follower has no batch of the offsets 1-1"),
        ((), (batch(4, b"a"),), 4, "the leader has no batch of the offsets 4-4"),
    ],
)
def test_replicas_differ_at_the_first_batch_that_is_not_the_same(
    leader: tuple[bytes, ...], follower: tuple[bytes, ...], offset: int, text: str
) -> None:
    [found] = differences(compare_batches(batches(*leader), batches(*follower)))
    assert (found.offset, text in found.text) == (offset, True), found


def test_compacted_replicas_are_compared_by_the_records_that_both_have() -> None:
    leader = (batch(0, b"a"), batch(1, b"b"), batch(5, b"c"))
    assert differences(compare_records(batches(*leader), batches(batch(1, b"b"), batch(5, b"c")))) == []
    [found] = differences(compare_records(batches(*leader), batches(batch(1, b"b"), batch(5, b"x"))))
    assert found == Difference(5, "the records differ")


def test_command_compares_all_partitions_or_those_that_are_named(
    cluster: FakeCluster, run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    cluster.create_topic("a", 2)
    cluster.create_topic("b", configs={"cleanup.policy": "compact"})
    run("produce", "a", "-p", "1", stdin="1\n2\n")
    cluster.delete_records("a", 1, 1)
    found = run("verify", "replicas")
    assert found.exit_code == 0, found.output
    assert found.stderr == "the replicas of 3 partitions are the same\n"
    [one] = run_json("verify", "replicas", "a:1")["partitions"]
    assert one == {
        "topic": "a",
        "partition": 1,
        "replicas": [1],
        "from_offset": 1,
        "to_offset": 2,
        "batches": 0,
        "result": "same",
        "detail": None,
    }
    assert "has no partitions [7]" in run("verify", "replicas", "a:7").stderr
    cluster.fail_next("Fetch", ErrorCode.KAFKA_STORAGE_ERROR)
    failed = run("verify", "replicas", "a:0")
    assert (failed.exit_code, "not compared" in failed.stdout) == (1, True)
    assert failed.stderr == "0 of 1 partition differ, 1 not compared\n"
