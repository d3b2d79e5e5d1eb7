"""The checker finds what the definitions say, read literally: each is written down naively here, and compared.

The histories are nonsense in which everything goes wrong at once; the definitions are those of docs/chaos.md.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidelog_chaos.checker import check
from tidelog_chaos.history import Op, OpType

KEYS = ("a", "b")
Pair = tuple[int | None, int]


def nonsense(dice: random.Random) -> list[Op]:
    """Return operations one after the other, with any value at any offset."""
    ops: list[Op] = []

    def add(process: int, kind: OpType, f: str, value: Any, **extra: Any) -> None:
        ops.append(Op(len(ops), process, kind, f, value, len(ops), extra=extra))

    def pair() -> list[int | None]:
        value = dice.randrange(6)
        return [dice.choice((value, value, value, value, dice.randrange(8), None)), value]

    for _ in range(dice.randint(1, 14)):
        process = dice.randrange(3)
        f = dice.choice(("send", "send", "poll", "poll", "poll", "txn", "txn", "assign", "subscribe", "crash"))
        kind: OpType = dice.choice(("ok", "ok", "ok", "info", "fail"))
        if f in ("assign", "subscribe", "crash"):
            value = None if f == "crash" else dice.sample(KEYS, dice.randint(0, 2))
            add(process, "invoke", f, value)
            add(process, kind, f, value)
            continue
        asked: list[list[Any]] = []
        done: list[list[Any]] = []
        for _ in range(dice.randint(1, 3)):
            if f == "send" or (f == "txn" and dice.random() < 0.5):
                key, (offset, value) = dice.choice(KEYS), pair()
                asked.append(["send", key, value])
                done.append(["send", key, dice.choice(([offset, value], [offset, value], value))])
            else:
                asked.append(["poll"])
                keys = dice.sample(KEYS, dice.randint(0, 2))
                done.append(["poll", {key: [pair() for _ in range(dice.randint(1, 3))] for key in keys}])
        add(process, "invoke", f, asked)
        extra = {"rebalance_log": [{"keys": [dice.choice(KEYS)]}]} if dice.random() < 0.1 else {}
        add(process, kind, f, done, **extra)
    return ops


def sends(op: Op, key: str) -> list[Pair]:
    pairs = [m[2] for m in op.value if m[0] == "send" and m[1] == key] if op.f in ("send", "txn") else []
    return [(pair[0], pair[1]) if isinstance(pair, list) else (None, pair) for pair in pairs]


def reads(op: Op, key: str) -> list[Pair]:
    polls = [m[1] for m in op.value if m[0] == "poll"] if op.f in ("poll", "txn") else []
    return [(offset, value) for poll in polls for offset, value in poll.get(key, ())]


def values(pairs: Sequence[Pair]) -> list[int]:
    return [value for _, value in pairs]


class Definitions:
    """The findings of each definition in a history, counted by name; a ``~`` precedes the names of permitted ones."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.done = [op for op in ops if op.type != "invoke"]
        self.transactions = [op for op in self.done if op.f in ("send", "poll", "txn")]
        self.found: Counter[str] = Counter()
        for key in KEYS:
            self._of_key(key)

    def _ok_reads(self, key: str) -> set[int]:
        return {value for op in self.transactions if op.type == "ok" for value in values(reads(op, key))}

    def _took_effect(self, op: Op) -> bool:
        seen = any(self._ok_reads(key) & set(values(sends(op, key))) for key in KEYS)
        return op.type == "ok" or (op.type == "info" and seen)

    def _log(self, key: str) -> list[list[int]]:
        """Return the values at each index, in the order of the history."""
        at: dict[int, list[int]] = {}
        for op in self.transactions:
            for micro_operation in op.value:
                one = Op(op.index, op.process, op.type, "txn", [micro_operation], 0)
                for offset, value in reads(one, key) + (sends(one, key) if self._took_effect(op) else []):
                    if offset is not None and value not in at.setdefault(offset, []):
                        at[offset].append(value)
        return [at[offset] for offset in sorted(at)]

    def _of_key(self, key: str) -> None:
        log = self._log(key)
        places: dict[int, list[int]] = {}
        for index, there in enumerate(log):
            for value in there:
                places.setdefault(value, []).append(index)
        order = {there[0]: index for index, there in enumerate(log)}
        self.found["inconsistent-offsets"] += sum(len(there) > 1 for there in log)
        self.found["duplicate"] += sum(len(indexes) > 1 for indexes in places.values())
        self._losses(key, places)
        self._exposures(key, [value for there in log if len(there) > 1 for value in there])
        for process in {op.process for op in self.done}:
            self._order_of(key, [op for op in self.done if op.process == process], order)

    def _losses(self, key: str, places: dict[int, list[int]]) -> None:
        seen = self._ok_reads(key)
        writers = {value: op for op in self.transactions for value in values(sends(op, key))}
        bound = max((places[value][0] for value in seen if value in places), default=-1)
        for value, indexes in places.items():
            if indexes[-1] <= bound and value not in seen and value in writers:
                self.found["lost-write"] += self._took_effect(writers[value])
        acknowledged = {value for op in self.transactions if op.type == "ok" for value in values(sends(op, key))}
        self.found["unseen"] += len(acknowledged - seen)

    def _exposures(self, key: str, inconsistent: Sequence[int]) -> None:
        sent = {value for op in self.transactions for value in values(sends(op, key))}
        failed = {value for op in self.transactions if op.type == "fail" for value in values(sends(op, key))}
        polled = {value for op in self.transactions for value in values(reads(op, key))}
        self.found["phantom-read"] += len(polled - sent - set(inconsistent)) if sent else 0
        for op in self.transactions:
            own = set(values(sends(op, key))) & set(values(reads(op, key)))
            self.found["precommitted-read"] += bool(own)
            if op.type == "ok":
                self.found["G1a"] += bool(failed & set(values(reads(op, key))) - own)

    def _order_of(self, key: str, ops: Sequence[Op], order: dict[int, int]) -> None:
        def delta(before: int, after: int) -> int:
            return order[after] - order[before] if before in order and after in order else 1

        last_read: tuple[int, bool] | None = None
        last_sent: int | None = None
        subscribed = False
        for op in ops:
            if op.f == "crash":
                last_read, last_sent = None, None
            elif op.f in ("assign", "subscribe"):
                if op.type != "fail":
                    subscribed = op.f == "subscribe"
                    last_read, last_sent = (last_read, last_sent) if key in op.value else (None, None)
                    if last_read:
                        last_read = last_read[0], last_read[1] or subscribed
            else:
                polled, sent = values(reads(op, key)), values(sends(op, key))
                log = op.extra.get("rebalance_log", [])
                if not any(key in event["keys"] for event in log):
                    self._note("int-", "poll", (delta(*pair) for pair in pairwise(polled)))
                if last_read and polled:
                    permitted = "~" if subscribed or last_read[1] else ""
                    self._note(permitted, "poll", [delta(last_read[0], polled[0])])
                if polled and op.type == "ok":
                    last_read = polled[-1], subscribed
                deltas = [delta(*pair) for pair in pairwise(sent)]
                self.found["~int-send-skip"] += sum(step > 1 for step in deltas)
                self.found["int-nonmonotonic-send"] += sum(step < 1 for step in deltas)
                if sent and op.type != "fail":
                    self.found["nonmonotonic-send"] += last_sent is not None and delta(last_sent, sent[0]) < 1
                    last_sent = sent[-1]

    def _note(self, prefix: str, what: str, deltas: Sequence[int] | Iterator[int]) -> None:
        for step in deltas:
            self.found[f"{prefix}{what}-skip"] += step > 1
            self.found[f"{prefix}nonmonotonic-{what}"] += step < 1


ONCE_PER_OPERATION = ("G1a", "precommitted-read")
"""The checker counts each value, the definition here each operation and key."""


@settings(max_examples=examples(400), deadline=None)
@given(seed=st.integers(0, 2**32))
@example(seed=270)  # A process subscribes between two assignments.
def test_checker_finds_what_the_definitions_say(seed: int) -> None:
    ops = nonsense(random.Random(seed))
    expected = {name: count for name, count in Definitions(ops).found.items() if count}
    counts = check(ops).counts
    found = {**counts["anomalies"], **{f"~{name}": count for name, count in counts["permitted"].items()}}
    for name in ("G1c", "~G1c", "~G0"):
        found.pop(name, None)
    for name in ONCE_PER_OPERATION:
        assert (name in found) is (name in expected), name
        found.pop(name, None)
        expected.pop(name, None)
    assert found == expected


def test_nonsense_shows_every_name() -> None:
    shown: set[str] = set()
    for seed in range(300):
        shown |= {name for name, count in Definitions(nonsense(random.Random(seed))).found.items() if count}
    names = ("inconsistent-offsets", "duplicate", "lost-write", "unseen", "phantom-read", *ONCE_PER_OPERATION)
    orders = ("int-poll-skip", "int-nonmonotonic-poll", "poll-skip", "nonmonotonic-poll", "~poll-skip")
    writes = ("~nonmonotonic-poll", "~int-send-skip", "int-nonmonotonic-send", "nonmonotonic-send")
    assert shown == {*names, *orders, *writes}
