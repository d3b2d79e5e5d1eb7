"""A history's parts about a query that copies: random copies, faulty sinks and sources, and the summary.

``histories`` has each anomaly, and the nearest history without it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tidelog_chaos.checker import check
from tidelog_chaos.history import SPARK, InvalidHistoryError, Op
from tidelog_chaos.report.summary import copy_lines
from tidelog_chaos.verdict import Verdict

Records = list[tuple[int, int]]
"""Offsets and values."""
Batches = Sequence[Sequence[int]]


class Copying:
    """A history of a producer, a query and a reader, under construction; one line takes 10 ns."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.ops: list[Op] = []
        self.committed: Records = []
        self.aborted: Records = []
        self._note("copies", of={"in": "out"})
        offset = 0
        for value in range(1, 60):
            kind = self.dice.choices(("ok", "fail", "info"), (8, 1, 1))[0]
            is_stored = kind == "ok" or (kind == "info" and self.dice.random() < 0.5)
            self._add(value, "invoke", "send", [["send", "in", value]])
            self._add(value, kind, "send", [["send", "in", [offset, value] if kind == "ok" else value]])
            if is_stored or kind == "fail":
                (self.committed if is_stored else self.aborted).append((offset, value))
            offset += 1 + (self.dice.random() < 0.2)

    def batches(self) -> list[list[int]]:
        """Return the committed values, cut into batches."""
        values, found = [value for _, value in self.committed], []
        while values:
            size = self.dice.randint(1, 7)
            found.append(values[:size])
            values = values[size:]
        return found

    def verdict(self, copies: Sequence[int]) -> Verdict:
        """Return the verdict when a reader finds these values in the output, with gaps between batches."""
        offset, found = 0, []
        for value in copies:
            offset += 1 + (self.dice.random() < 0.2)
            found.append([offset, value])
        self._note("copied", limit_s=120, behind={})
        for process, key, records in ((900, "in", [list(each) for each in self.committed]), (901, "out", found)):
            self._add(process, "invoke", "poll", [["poll"]])
            self._add(process, "ok", "poll", [["poll", {key: records}]])
        return check(self.ops)

    def _note(self, f: str, **value: Any) -> None:
        self._add(SPARK, "info", f, value)

    def _add(self, process: int | str, kind: Any, f: str, value: Any) -> None:
        self.ops.append(Op(len(self.ops), process, kind, f, value, 10 * len(self.ops)))


def flat(batches: Batches) -> list[int]:
    return [value for batch in batches for value in batch]


def repeated(copying: Copying, batches: list[list[int]]) -> list[int]:
    """A sink at least once: it writes a batch again after a restart."""
    number = copying.dice.randrange(len(batches))
    return flat([*batches[: number + 1], batches[number], *batches[number + 1 :]])


def half_repeated(copying: Copying, batches: list[list[int]]) -> list[int]:
    """A sink that leaves the transaction of a killed task to be committed beside that of its repetition."""
    number = copying.dice.randrange(len(batches))
    part = batches[number][: copying.dice.randint(1, len(batches[number]))]
    return flat([*batches[:number], part, *batches[number:]])


def aborted(copying: Copying, batches: list[list[int]]) -> list[int]:
    """A sink that aborts a committed batch when it starts again."""
    number = copying.dice.randrange(len(batches))
    return flat([*batches[:number], *batches[number + 1 :]])


def skipped(copying: Copying, batches: list[list[int]]) -> list[int]:
    """A source that skips the first record after a restart."""
    values = flat(batches)
    del values[copying.dice.randrange(len(values))]
    return values


def uncommitted(copying: Copying, batches: list[list[int]]) -> list[int]:
    """A source that reads records of aborted transactions."""
    values = flat(batches)
    values.insert(copying.dice.randint(0, len(values)), copying.dice.choice(copying.aborted)[1])
    return values


def late(copying: Copying, batches: list[list[int]]) -> list[int]:
    """A sink that forgets the commit of a batch, and commits it after the next one."""
    number = copying.dice.randrange(len(batches) - 1)
    return flat([*batches[:number], batches[number + 1], batches[number], *batches[number + 2 :]])


def made_up(copying: Copying, batches: list[list[int]]) -> list[int]:
    """A source that decodes what is not a record."""
    return [*flat(batches), 1_000_000]


@pytest.mark.parametrize("seed", range(5))
def test_copy_with_gaps_and_aborted_originals_is_valid(seed: int) -> None:
    copying = Copying(seed)
    verdict = copying.verdict(flat(copying.batches()))
    assert verdict.valid, verdict.anomalies
    assert verdict.statistics["copies"]["copied"]
    assert verdict.statistics["copies"]["copies"] == len(copying.committed)


@pytest.mark.parametrize(
    ("bug", "anomaly"),
    [
        (repeated, "duplicate"),
        (half_repeated, "duplicate"),
        (aborted, "copy-missing"),
        (skipped, "copy-missing"),
        (uncommitted, "copy-of-aborted"),
        (late, "copy-disordered"),
        (made_up, "copy-invented"),
    ],
)
def test_faulty_sink_or_source_is_found(bug: Callable[[Copying, list[list[int]]], list[int]], anomaly: str) -> None:
    for seed in range(5):
        copying = Copying(seed)
        verdict = copying.verdict(bug(copying, copying.batches()))
        assert anomaly in verdict.anomalies, f"seed {seed}: {verdict.counts}"


def test_copy_of_nothing_is_missing_everywhere() -> None:
    copying = Copying(1)
    assert copying.verdict([]).counts["anomalies"] == {"copy-missing": len(copying.committed)}


@pytest.mark.parametrize(
    ("f", "value"),
    [("copies", {"of": ["in"]}), ("killed", {"start": 1}), ("copied", {"behind": {"in": 4}}), ("failed", None)],
)
def test_note_of_copies_that_cannot_be_read_is_refused_with_its_index(f: str, value: Any) -> None:
    with pytest.raises(InvalidHistoryError, match=f"index 7: .* is not what is noted of copies as {f}"):
        check([Op(7, SPARK, "info", f, value, 0)])


def test_summary_has_a_line_about_copies() -> None:
    found = {"copies": 1200, "batches": 31, "starts": 3, "kills": {"all": 1, "worker": 2}, "longest_pause_s": 12.34}
    assert list(copy_lines({**found, "failures": {"no answer": 1}})) == [
        "",
        "1,200 values copied in 31 batches and 3 starts of the query; kills: all 1, worker 2; at most 12.3 s between "
        "two batches",
        "the query failed 1 times: no answer",
    ]
    assert list(copy_lines({})) == []
