"""A history's parts about Kafka's transactions: accepted and refused ones, and the results.

``histories`` has each anomaly, and the nearest history without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tidelog_chaos.checker import check
from tidelog_chaos.history import TRANSACTIONS, InvalidHistoryError, Op, OpType
from tidelog_chaos.report.summary import transaction_lines
from tidelog_chaos.verdict import Verdict


@dataclass
class Lines:
    """A history under construction. One line takes 10 ns."""

    ops: list[Op] = field(default_factory=list)

    def add(self, process: int | str, kind: OpType, f: str, value: Any, **extra: Any) -> Op:
        op = Op(len(self.ops), process, kind, f, value, 10 * len(self.ops), extra=extra)
        self.ops.append(op)
        return op

    def note(self, f: str, **value: Any) -> None:
        self.add(TRANSACTIONS, "info", f, value)

    def initialized(self, producer: int, name: str = "t") -> None:
        self.note("initialized", transactional_id=name, producer=producer, since=self.now_ns)

    @property
    def now_ns(self) -> int:
        return 10 * len(self.ops)

    def begin(self, producer: int, *sends: tuple[str, int], **extra: Any) -> Op:
        """Begin a transaction; the process is the producer's number."""
        value = [["send", key, number] for key, number in sends]
        return self.add(producer, "invoke", "txn", value, transactional_id="t", producer=producer, **extra)

    def end(self, begun: Op, kind: OpType, **extra: Any) -> None:
        self.add(begun.process, kind, "txn", begun.value, **extra)

    def commit(self, producer: int, *sends: tuple[str, int], kind: OpType = "ok", **extra: Any) -> None:
        begun = self.begin(producer, *sends, **extra)
        self.end(begun, kind, committing=self.now_ns)

    def poll(self, process: int, **found: list[tuple[int, int]]) -> None:
        self.add(process, "invoke", "poll", [["poll"]])
        self.add(
            process, "ok", "poll", [["poll", {key: [list(pair) for pair in pairs] for key, pairs in found.items()}]]
        )

    def check(self) -> Verdict:
        return check(self.ops)


def settle(lines: Lines, **behind: list[int]) -> None:
    lines.note("settled", limit_s=70, behind=behind)


def test_committed_and_aborted_transactions_are_valid_as_they_should_be_read() -> None:
    lines = Lines()
    lines.initialized(1)
    lines.commit(1, ("a", 1), ("b", 1))
    lines.end(lines.begin(1, ("a", 2)), "fail")
    lines.commit(1, ("a", 3), kind="info")
    settle(lines)
    lines.poll(9, a=[(0, 1)], b=[(0, 1)])
    verdict = lines.check()
    assert verdict.valid, verdict.anomalies
    found = verdict.statistics["transactions"]
    assert found["outcomes"] == {"ok": 1, "info": 1, "fail": 1}
    assert found["settled"]
    assert list(transaction_lines(found))[1] == (
        "3 transactions of 1 producers with 1 transactional ids: 1 committed, 1 aborted, 1 unknown; "
        "0 consumed records with output"
    )
    assert list(transaction_lines({})) == []


def consumed(*offsets: int) -> dict[str, Any]:
    """Return the members of a transaction that consumed these offsets of the key ``in``."""
    return {"from": [["in", offset] for offset in offsets], "consumed": {"in": offsets[-1] + 1}}


def test_partition_that_stays_behind_its_high_watermark_hangs() -> None:
    lines = Lines()
    lines.commit(1, ("a", 1))
    settle(lines, a=[1, 4])
    lines.poll(9, a=[(0, 1)])
    assert lines.check().counts["anomalies"] == {"hanging-transaction": 1}
    [case] = lines.check().anomalies["hanging-transaction"]
    assert case["text"] == "a: the last stable offset stayed at 1, below the high watermark 4"


@pytest.mark.parametrize(
    ("f", "value"),
    [
        ("initialized", {"transactional_id": "t", "since": 0}),
        ("fetched", {"offsets": {"in": -2}}),
        ("settled", {"behind": {"in": 4}}),
        ("ended", None),
    ],
)
def test_note_that_cannot_be_read_is_refused_with_its_index(f: str, value: Any) -> None:
    with pytest.raises(InvalidHistoryError, match=f"index 7: .* is not what is noted of transactions as {f}"):
        check([Op(7, TRANSACTIONS, "info", f, value, 0)])


def test_operation_with_a_source_too_few_is_refused() -> None:
    lines = Lines()
    lines.begin(1, ("a", 1), ("a", 2), **consumed(0))
    with pytest.raises(InvalidHistoryError, match="index 0"):
        lines.check()
