"""Histories are read as they were written; a line that is none is named."""

from __future__ import annotations

import itertools
import json
import pickle
import threading
from pathlib import Path

import pytest

from tidelog_chaos.history import NEMESIS, HistoryWriter, InvalidHistoryError, Op, read_history


def lines(*operations: dict[str, object]) -> list[str]:
    return [json.dumps(operation) for operation in operations]


INVOKE = {"index": 0, "process": 0, "type": "invoke", "f": "send", "value": [["send", "k", 1]], "time": 0}
OK = {"index": 1, "process": 0, "type": "ok", "f": "send", "value": [["send", "k", [0, 1]]], "time": 5}


def test_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    ticks = itertools.count(1_000, 7)
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path, clock=lambda: next(ticks)) as writer:
        send = writer.invoke(0, "send", [["send", "orders-3", 1]])
        note = writer.note("start-kill", ["node 1"], node=1)
        sent = writer.complete(send, "ok", [["send", "orders-3", [0, 1]]])
        poll = writer.invoke(1, "poll", [["poll"]])
        polled = writer.complete(poll, "info", error="timed out", rebalance_log=[{"keys": ["orders-3"]}])
    written = [send, note, sent, poll, polled]
    assert list(read_history(path.read_text().splitlines())) == written
    assert list(read_history(path.read_bytes().splitlines())) == written
    assert [op.index for op in written] == [0, 1, 2, 3, 4]
    assert [op.time_ns for op in written] == [7, 14, 21, 28, 35]
    assert (note.process, note.type) == (NEMESIS, "info")
    assert polled.value == [["poll"]]
    first = json.loads(path.read_text().splitlines()[0])
    assert first == {
        "index": 0,
        "process": 0,
        "type": "invoke",
        "f": "send",
        "value": [["send", "orders-3", 1]],
        "time": 7,
    }


def test_history_keeps_members_that_it_does_not_know() -> None:
    [op] = read_history(lines({**OK, "node": "n1", "rebalance_log": [], "error": ["indefinite", 7]}))
    assert op.extra == {"node": "n1", "rebalance_log": []}
    assert op.error == '["indefinite", 7]'


def test_history_numbers_operations_that_have_no_index() -> None:
    bare = {"process": 0, "type": "ok", "f": "crash"}
    some = {**bare, "index": 7, "time": 3.0}
    read = list(read_history(["", *lines(bare, some, {**bare, "index": None, "time": None}), "\n"]))
    assert [(op.index, op.time_ns, op.value) for op in read] == [(0, 0, None), (7, 3, None), (8, 3, None)]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "line 2: not JSON: Expecting property name"),
        (b"\xff", "line 2: not UTF-8"),
        ("[" * 100_000, "line 2: "),
        ("[1]", "line 2: an operation is a JSON object"),
        ("{}", "line 2: process and type and f missing"),
        (json.dumps({**OK, "type": "okay"}), 'line 2: type is "okay"'),
        (json.dumps({**OK, "type": [1]}), "line 2: type is [1]"),
        (json.dumps({**OK, "f": 1}), "line 2: f is 1"),
        (json.dumps({**OK, "process": None}), "line 2: process is null"),
        (json.dumps({**OK, "process": True}), "line 2: process is true"),
        (json.dumps({**OK, "index": "1"}), 'line 2: index is "1"'),
        (json.dumps({**OK, "index": 0}), "line 2: index 0 after index 0"),
        (json.dumps({**OK, "time": 0.5}), "line 2: time is 0.5"),
        (json.dumps({**OK, "time": -1}), "line 2: time is -1, not a whole number from 0 to 2305843009213693952"),
        (json.dumps({**OK, "time": 1e300}), "line 2: time is 1000000"),
        (json.dumps({**OK, "index": 2**70}), "line 2: index is 1180591620717411303424, not a whole number from 0"),
        (json.dumps({**INVOKE, "index": 1}), "line 2: process 0 invokes send while its send of index 0 is pending"),
        (json.dumps({**OK, "f": "poll"}), "line 2: process 0 completes poll, its send of index 0 is pending"),
    ],
)
def test_history_names_the_line_that_is_wrong(line: str | bytes, text: str) -> None:
    with pytest.raises(InvalidHistoryError) as caught:
        list(read_history([*lines(INVOKE), line]))
    assert caught.value.message.startswith(text)
    assert caught.value.line == 2
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.line, copy.message) == (2, caught.value.message)


def test_history_lets_the_nemesis_do_several_things_at_a_time() -> None:
    note = {"process": NEMESIS, "type": "invoke", "f": "start-kill"}
    assert len(list(read_history(lines(note, {**note, "f": "start-pause"}, {**note, "type": "info"})))) == 3


def test_writer_gives_indexes_in_the_order_of_time_to_many_threads(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"

    def work(process: int) -> None:
        for number in range(200):
            writer.complete(writer.invoke(process, "send", [["send", "k", number]]), "ok")

    with HistoryWriter(path) as writer:
        threads = [threading.Thread(target=work, args=(process,)) for process in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        read = list(read_history(path.read_text().splitlines()))
    assert [op.index for op in read] == list(range(1600))
    assert [op.time_ns for op in read] == sorted(op.time_ns for op in read)


def test_writer_refuses_members_that_are_its_own(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "history.jsonl") as writer, pytest.raises(ValueError, match=r"\['index'\]"):
        writer.note("start-kill", index=7)


def test_op_without_error_and_extra_members_has_those_of_the_format() -> None:
    assert Op(0, 0, "ok", "crash", None, 0).as_json() == {
        "index": 0,
        "process": 0,
        "type": "ok",
        "f": "crash",
        "value": None,
        "time": 0,
    }
