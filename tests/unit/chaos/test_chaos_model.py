"""A correct log is always found valid, every corruption that is planted into its history is found under its name."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_clients_model import KEYS, LogClients

from tidelog_chaos.checker import check
from tidelog_chaos.history import Op

Plant = Callable[[LogClients, str], None]


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 400))
@example(seed=13195474, steps=132)  # A rebalance between two assignments moves a position.
def test_correct_log_is_always_valid(seed: int, steps: int) -> None:
    model = LogClients(seed)
    verdict = check(model.run(steps))
    assert verdict.valid, verdict.anomalies
    assert not any("looked for" in note for note in verdict.notes)


def test_model_makes_what_it_is_to_make() -> None:
    """The model is not vacuous: it shows what is permitted, and all outcomes."""
    permitted: set[str] = set()
    outcomes: set[str] = set()
    for seed in range(40):
        verdict = check(LogClients(seed).run(400))
        permitted |= set(verdict.permitted)
        outcomes |= {kind for counts in verdict.statistics["operations"].values() for kind, n in counts.items() if n}
    assert permitted >= {"int-send-skip", "G0", "G1c", "poll-skip", "nonmonotonic-poll"}
    assert outcomes == {"ok", "info", "fail"}


def ok(model: LogClients, process: int, f: str, value: list[Any]) -> None:
    invoked = [
        micro_operation[:1] if micro_operation[0] == "poll" else [*micro_operation[:2], 0] for micro_operation in value
    ]
    for made, asked in zip(value, invoked, strict=True):
        if made[0] == "send":
            asked[2] = made[2][1]
    model.append(process, "invoke", f, invoked)
    model.append(process, "ok", f, value)


def poll(model: LogClients, process: int, key: str, *pairs: tuple[int, int]) -> None:
    ok(model, process, "poll", [["poll", {key: [list(pair) for pair in pairs]}]])


def send(model: LogClients, key: str, *offsets: int | None, process: int | None = None) -> list[int]:
    values = [model.fresh_value() for _ in offsets]
    pairs = zip(offsets, values, strict=True)
    process = model.fresh_process() if process is None else process
    ok(model, process, "send", [["send", key, [offset, value]] for offset, value in pairs])
    return values


def end(model: LogClients, key: str) -> int:
    return len(model.logs[key]) + 10


def plant_inconsistent_offsets(model: LogClients, key: str) -> None:
    send(model, key, model.visible(key)[1][0])


def plant_duplicate(model: LogClients, key: str) -> None:
    poll(model, model.fresh_process(), key, (end(model, key), model.visible(key)[1][1]))


def plant_lost_write(model: LogClients, key: str) -> None:
    """Take a value of an acknowledged send out of all polls."""
    acknowledged = {
        (micro_operation[1], micro_operation[2][1])
        for op in model.ops
        if op.type == "ok" and op.f in ("send", "txn")
        for micro_operation in op.value
        if micro_operation[0] == "send" and micro_operation[2][0] is not None
    }
    lost = next(value for _, value in model.visible(key)[:-1] if (key, value) in acknowledged)
    for op in model.ops:
        if op.f in ("poll", "txn") and op.type != "invoke":
            for micro_operation in op.value:
                if micro_operation[0] == "poll" and len(micro_operation) == 2:
                    pairs = micro_operation[1].get(key, [])
                    pairs[:] = [pair for pair in pairs if pair[1] != lost]


def plant_unseen(model: LogClients, key: str) -> None:
    send(model, key, None)
    poll(model, model.fresh_process(), key)


def plant_phantom_read(model: LogClients, key: str) -> None:
    poll(model, model.fresh_process(), key, (end(model, key), model.fresh_value()))


def plant_g1a(model: LogClients, key: str) -> None:
    process, value = model.fresh_process(), model.fresh_value()
    model.append(process, "invoke", "send", [["send", key, value]])
    model.append(process, "fail", "send", [["send", key, value]])
    poll(model, process, key, (end(model, key), value))


def plant_precommitted_read(model: LogClients, key: str) -> None:
    offset, value = end(model, key), model.fresh_value()
    ok(model, model.fresh_process(), "txn", [["send", key, [offset, value]], ["poll", {key: [[offset, value]]}]])


def plant_int_poll_skip(model: LogClients, key: str) -> None:
    first, _, third, *_ = model.visible(key)
    poll(model, model.fresh_process(), key, first, third)


def plant_int_nonmonotonic_poll(model: LogClients, key: str) -> None:
    first, second, *_ = model.visible(key)
    poll(model, model.fresh_process(), key, second, first)


def plant_poll_skip(model: LogClients, key: str) -> None:
    process, (first, _, third, *_) = model.fresh_process(), model.visible(key)
    poll(model, process, key, first)
    poll(model, process, key, third)


def plant_nonmonotonic_poll(model: LogClients, key: str) -> None:
    process, (first, second, *_) = model.fresh_process(), model.visible(key)
    poll(model, process, key, second)
    poll(model, process, key, first)


def plant_int_nonmonotonic_send(model: LogClients, key: str) -> None:
    send(model, key, end(model, key) + 1, end(model, key))


def plant_nonmonotonic_send(model: LogClients, key: str) -> None:
    process, offset = model.fresh_process(), end(model, key)
    send(model, key, offset + 1, process=process)
    send(model, key, offset, process=process)


def plant_g1c(model: LogClients, key: str) -> None:
    other = next(name for name in KEYS if name != key)
    mine, theirs = [end(model, key), model.fresh_value()], [end(model, other), model.fresh_value()]
    one, two = model.fresh_process(), model.fresh_process()
    model.append(one, "invoke", "txn", [["send", key, mine[1]], ["poll"]])
    ok(model, two, "txn", [["send", other, theirs], ["poll", {key: [mine]}]])
    model.append(one, "ok", "txn", [["send", key, mine], ["poll", {other: [theirs]}]])


def plant_g1c_against_real_time(model: LogClients, key: str) -> None:
    offset, value = end(model, key), model.fresh_value()
    poll(model, model.fresh_process(), key, (offset, value))
    ok(model, model.fresh_process(), "send", [["send", key, [offset, value]]])


PLANTS: dict[str, tuple[str, Plant]] = {
    "inconsistent-offsets": ("inconsistent-offsets", plant_inconsistent_offsets),
    "duplicate": ("duplicate", plant_duplicate),
    "lost-write": ("lost-write", plant_lost_write),
    "unseen": ("unseen", plant_unseen),
    "phantom-read": ("phantom-read", plant_phantom_read),
    "G1a": ("G1a", plant_g1a),
    "precommitted-read": ("precommitted-read", plant_precommitted_read),
    "int-poll-skip": ("int-poll-skip", plant_int_poll_skip),
    "int-nonmonotonic-poll": ("int-nonmonotonic-poll", plant_int_nonmonotonic_poll),
    "poll-skip": ("poll-skip", plant_poll_skip),
    "nonmonotonic-poll": ("nonmonotonic-poll", plant_nonmonotonic_poll),
    "int-nonmonotonic-send": ("int-nonmonotonic-send", plant_int_nonmonotonic_send),
    "nonmonotonic-send": ("nonmonotonic-send", plant_nonmonotonic_send),
    "G1c": ("G1c", plant_g1c),
    "G1c against real time": ("G1c", plant_g1c_against_real_time),
}


@pytest.mark.parametrize("kind", sorted(PLANTS))
@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 2**32), key=st.sampled_from(KEYS))
def test_planted_corruption_is_found_under_its_name(kind: str, seed: int, key: str) -> None:
    name, plant = PLANTS[kind]
    model = LogClients(seed)
    model.run(400)
    plant(model, key)
    verdict = check(model.ops)
    assert not verdict.valid
    assert name in verdict.anomalies, verdict.anomalies


@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_circles_are_those_that_all_edges_give(seed: int) -> None:
    """Random nonsense is searched as cleverly as a healthy history; the whole graph, walked naively, must agree."""
    ops = nonsense(random.Random(seed))
    verdict = check(ops)
    completions = [op for op in ops if op.type != "invoke"]
    began = {op.index: invoked(ops, op) for op in completions}
    writers = {
        (m[1], m[2][1]): op.index for op in completions for m in op.value if m[0] == "send" and isinstance(m[2], list)
    }
    reads = {
        (writers[key, value], op.index)
        for op in completions
        for m in op.value
        if m[0] == "poll"
        for key, pairs in m[1].items()
        for _, value in pairs
        if (key, value) in writers and writers[key, value] != op.index
    }
    times = {
        (one.index, other.index)
        for one in completions
        for other in completions
        if one.type == "ok" and one.index < began[other.index]
    }
    assert ("G1c" in verdict.anomalies) is has_circle(reads | times, {op.index for op in completions})


def nonsense(dice: random.Random) -> list[Op]:
    """Return transactions that overlap, send at once and read anything at all, now or in the future."""
    model = LogClients(0)
    offsets = dict.fromkeys(KEYS, 0)
    sends: list[tuple[str, int, int]] = []
    for value in range(12):
        key = dice.choice(KEYS)
        sends.append((key, offsets[key], value))
        offsets[key] += 1
    pending: list[tuple[int, list[Any]]] = []
    for number in range(8):
        for process, value in [entry for entry in pending if dice.random() < 0.5]:
            pending.remove((process, value))
            model.append(process, dice.choice(("ok", "ok", "ok", "info")), "txn", value)
        mine = [sends.pop() for _ in range(min(len(sends), dice.randint(0, 2)))]
        value = [["send", key, [offset, written]] for key, offset, written in mine]
        for key, offset, written in dice.sample(sends, min(len(sends), 1)) if dice.random() < 0.3 else []:
            value.append(["poll", {key: [[offset, written]]}])
        for entry in pending:
            for m in entry[1]:
                if m[0] == "send" and dice.random() < 0.3:
                    value.append(["poll", {m[1]: [list(m[2])]}])
        model.append(number, "invoke", "txn", [["poll"]])
        pending.append((number, value))
    for process, value in pending:
        model.append(process, "ok", "txn", value)
    return model.ops


def invoked(ops: list[Op], completion: Op) -> int:
    return next(op.index for op in ops if op.process == completion.process and op.type == "invoke")


def has_circle(edges: set[tuple[int, int]], vertices: set[int]) -> bool:
    reach = set(edges)
    for middle, start, stop in itertools.product(vertices, repeat=3):
        if (start, middle) in reach and (middle, stop) in reach:
            reach.add((start, stop))
    return any((vertex, vertex) in reach for vertex in vertices)
