"""Rules of the checker that no history file shows: what is left out, what is counted, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidelog_chaos.checker import check
from tidelog_chaos.checker.components import shortest_circle, strong_components
from tidelog_chaos.history import InvalidHistoryError, Op, OpType
from tidelog_chaos.verdict import Verdict


def history(*lines: tuple[Any, ...]) -> list[Op]:
    """Return operations of (time, process, type, f, value[, extra])."""
    kinds: dict[str, OpType] = {"invoke": "invoke", "ok": "ok", "info": "info", "fail": "fail"}
    return [
        Op(index, process, kinds[kind], f, value, time_ns, extra=dict(*rest))
        for index, (time_ns, process, kind, f, value, *rest) in enumerate(lines)
    ]


def sent(process: int, key: str, value: int, offset: int, time_ns: int = 0) -> list[tuple[Any, ...]]:
    return [
        (time_ns, process, "invoke", "send", [["send", key, value]]),
        (time_ns, process, "ok", "send", [["send", key, [offset, value]]]),
    ]


def polled(process: int, *polls: dict[str, Any], time_ns: int = 0) -> list[tuple[Any, ...]]:
    return [
        (time_ns, process, "invoke", "poll", [["poll"] for _ in polls]),
        (time_ns, process, "ok", "poll", [["poll", poll] for poll in polls]),
    ]


def test_lag_is_as_in_the_example_of_jepsens_tests() -> None:
    """The history of kafka_test.clj, realtime-lag-test."""
    ops = history(
        (0, 0, "invoke", "assign", ["x"]),
        (1, 0, "ok", "assign", ["x"]),
        (2, 0, "invoke", "poll", [["poll"]]),
        (3, 0, "ok", "poll", [["poll", {"x": []}]]),
        (4, 0, "invoke", "send", [["send", "x", 1]]),
        (5, 0, "ok", "send", [["send", "x", [0, 1]]]),
        (6, 0, "invoke", "poll", [["poll"]]),
        (7, 0, "ok", "poll", [["poll", {"x": []}]]),
        (8, 1, "invoke", "send", [["send", "x", 3], ["send", "x", 4]]),
        (9, 1, "ok", "send", [["send", "x", [2, 3]], ["send", "x", [3, 4]]]),
        (12_000_000, 0, "invoke", "poll", [["poll"]]),
        (13_000_000, 0, "ok", "poll", [["poll", {"x": [[0, 1], [1, 2]]}]]),
        (18_000_000, 0, "invoke", "assign", ["y"]),
        (19_000_000, 0, "ok", "assign", ["y"]),
        (20_000_000, 0, "invoke", "assign", ["x"]),
        (21_000_000, 0, "ok", "assign", ["x"]),
        (22_000_005, 0, "invoke", "poll", [["poll"]]),
        (23_000_000, 0, "ok", "poll", [["poll", {}]]),
        (24_000_000, 0, "invoke", "poll", [["poll"], ["poll"]]),
        (25_000_000, 0, "ok", "poll", [["poll", {"x": [[0, 1], [1, 2]]}], ["poll", {"x": [[2, 3], [3, 4]]}]]),
        (26_000_000, 1, "invoke", "send", [["send", "x", 2]]),
        (27_000_000, 1, "info", "send", [["send", "x", 2]]),
    )
    lag = check(ops).statistics["realtime_lag"]
    assert lag["worst"] == {"lag_ms": 22.0, "process": 0, "key": "x", "time": 22_000_005}
    assert (lag["reads"], lag["p50_ms"], lag["max_ms"]) == (2, 12.0, 12.0)


def test_consume_counts_are_of_subscribers() -> None:
    ops = history(
        *sent(0, "k", 1, 0),
        *sent(0, "k", 2, 1),
        (0, 1, "invoke", "subscribe", ["k"]),
        (0, 1, "ok", "subscribe", ["k"]),
        *polled(1, {"k": [[0, 1], [1, 2]]}),
        *polled(1, {"k": [[1, 2]]}),
        *polled(2, {"k": [[0, 1], [1, 2]]}),
    )
    counts = check(ops).statistics["consume_counts"]
    assert counts["distribution"] == {"1": 1, "2": 1}
    assert counts["repeated"] == [{"key": "k", "value": 2, "process": 1, "count": 2}]


def test_replicas_that_differ_are_an_anomaly() -> None:
    ops = history(*sent(0, "k", 1, 0), *polled(1, {"k": [[0, 1]]}))
    equal = {"k": {"1": ["0-1:aa", "2-3:bb"], "2": ["0-1:aa", "2-3:bb"]}}
    assert check(ops, replica_logs=equal).valid
    verdict = check(ops, replica_logs={**equal, "l": {"1": ["0-1:aa", "2-3:bb"], "2": ["0-1:aa"], "3": ["0-1:aa"]}})
    assert not verdict.valid
    assert verdict.anomalies == {
        "divergent-replicas": [
            {
                "text": "l: the replicas differ from entry 1 on: 2-3:bb on 1 and nothing on 2",
                "key": "l",
                "position": 1,
                "replicas": {"1": "2-3:bb", "2": None, "3": None},
                "ops": [],
            }
        ]
    }


def test_findings_beyond_the_limit_are_counted_alone() -> None:
    lines = [line for value in range(50) for line in sent(0, "k", value, value)]
    verdict = check(history(*lines, *polled(1, {"k": []})), limit=3)
    assert len(verdict.anomalies["unseen"]) == 3
    assert verdict.counts["anomalies"] == {"unseen": 50}


def test_operations_behind_a_finding_are_cut_to_what_matters() -> None:
    lines = [line for value in range(100) for line in sent(0, "k", value, value)]
    reads = [[value, value] for value in range(100) if value != 50]
    verdict = check(history(*lines, *polled(1, {"k": reads}), *polled(2, {"k": [[50, 50]]})))
    [case] = verdict.anomalies["int-poll-skip"]
    [op] = case["ops"]
    assert op["value"] == [["poll", {"k": [[value, value] for value in (46, 47, 48, 49, 51, 52, 53, 54)]}]]
    assert op["left_out"] == 91


def test_notes_say_what_a_history_cannot_show() -> None:
    assert "nothing to lose" in check(history(*polled(0, {}))).notes[0]
    assert "a check needs readers" in check(history(*sent(0, "k", 1, 0))).notes[-1]
    assert "1 unseen value was not looked for" in check(history(*sent(0, "k", 1, 0))).notes[0]


def test_unknown_causes_are_counted() -> None:
    ops = [
        Op(0, 0, "info", "send", [["send", "k", 1]], 0, "timed out"),
        Op(1, 1, "info", "send", [["send", "k", 2]], 0, "timed out"),
        Op(2, 2, "fail", "send", [["send", "k", 3]], 0, "fenced"),
    ]
    statistics = check(ops).statistics
    assert statistics["unknown_causes"] == {"timed out": 2}
    assert statistics["operations"] == {"send": {"ok": 0, "info": 2, "fail": 1}}


def test_a_completion_without_a_value_has_that_of_its_invocation() -> None:
    invoke, done = sent(0, "k", 1, 0)
    verdict = check(history(invoke, (0, 0, "fail", "send", None), *polled(1, {"k": [[0, 1]]})))
    assert list(verdict.anomalies) == ["G1a"]
    assert done[4] == [["send", "k", [0, 1]]]


def test_keys_that_are_numbers_are_those_of_the_polls() -> None:
    ops = history((0, 0, "ok", "send", [["send", 11, [0, 1]]]), *polled(1, {"11": [[0, 1]]}))
    assert check(ops).valid
    assert check(ops).statistics["values"] == {"sent": 1, "acknowledged": 1, "read": 1, "placed": 1}


def test_two_invocations_of_a_process_leave_the_first_unknown() -> None:
    invoke = sent(0, "k", 1, 0)[0]
    verdict = check(history(invoke, *sent(0, "k", 2, 1), *polled(1, {"k": [[0, 1], [1, 2]]})))
    assert verdict.valid
    assert verdict.statistics["operations"]["send"] == {"ok": 1, "info": 1, "fail": 0}


@pytest.mark.parametrize(
    ("f", "value", "text"),
    [
        ("send", 7, "a transaction's value is a list of micro-operations, not 7"),
        ("send", [["sent", "k", 1]], '["sent", "k", 1] is neither a send nor a poll'),
        ("send", [["send", "k"]], "neither a send nor a poll"),
        ("send", [["send", "k", [1]]], "[1] is not a pair of an offset from 0 to 2305843009213693952, or null"),
        ("send", [["send", "k", [-1, 1]]], "[-1, 1] is not a pair"),
        ("send", [["send", "k", [2**70, 1]]], "[1180591620717411303424, 1] is not a pair"),
        ("send", [["send", "k", [True, 1]]], "[true, 1] is not a pair"),
        ("send", list(range(1_000)), "0 is neither a send nor a poll"),
        ("poll", {"k": list(range(1_000))}, "30…"),
        ("send", [["send", "k", ["0", 1]]], '["0", 1] is not a pair'),
        ("send", [["send", "k", None]], "null is not a value"),
        ("send", [["send", "k", [0, [1]]]], "[1] is not a value"),
        ("send", [["send", None, 1]], "null is not a key"),
        ("poll", [["poll", [1]]], "neither a send nor a poll"),
        ("poll", [["poll", {"k": 1}]], "what is polled from k is a list of [offset, value], not 1"),
        ("poll", [["poll", {"k": [1]}]], "1 is not a pair"),
        ("assign", "k", 'the value of assign is a list of keys, not "k"'),
    ],
)
def test_checker_refuses_what_it_cannot_understand_and_names_the_index(f: str, value: Any, text: str) -> None:
    ops = history((0, 0, "ok", "send", [["send", "k", 9]]), (0, 1, "ok", f, value))
    with pytest.raises(InvalidHistoryError) as caught:
        check(ops)
    assert caught.value.index == 1
    assert caught.value.message.startswith("index 1: ")
    assert text in caught.value.message


def test_value_that_is_sent_again_is_counted_once_and_noted() -> None:
    verdict = check(history(*sent(0, "k", 1, 0), *sent(1, "k", 1, 1)))
    assert verdict.counts["anomalies"] == {"duplicate": 1, "unseen": 1}
    assert verdict.statistics["values"] == {"sent": 1, "acknowledged": 1, "read": 0, "placed": 1}
    assert verdict.notes[-1].startswith("1 value was sent more than once to its key, such as 1 to k: ")


def test_operations_that_are_not_known_are_passed_over_and_noted() -> None:
    ops = history(
        *sent(0, "k", 1, 0),
        *polled(1, {"k": [[0, 1]]}),
        (0, 0, "invoke", "sned", [["send", "k", 2]]),
        (0, 0, "ok", "sned", [["send", "k", [1, 2]]]),
        (0, 0, "invoke", "debug-topic-partitions", ["k"]),
        (0, 0, "ok", "debug-topic-partitions", {}),
        (0, "nemesis", "info", "start-kill", None),
    )
    assert check(ops).notes == ("Operations that are not known were passed over: sned (2).",)


def test_checker_refuses_a_rebalance_log_without_keys() -> None:
    op = Op(3, 0, "ok", "poll", [["poll", {}]], 0, extra={"rebalance_log": [{"topics": []}]})
    with pytest.raises(
        InvalidHistoryError, match=r'index 3: a rebalance log is a list of \{"keys": \[\.\.\.\]\}, or of keys'
    ):
        check([op])


def test_verdict_is_json() -> None:
    verdict = check(history(*sent(0, "k", 1, 0), *polled(1, {"k": [[0, 1]]})))
    members = json.loads(json.dumps(verdict.as_json()))
    assert (members["valid"], members["anomalies"], members["permitted"]) == (True, {}, {})
    assert Verdict.from_json(members) == verdict


def test_components_and_circles_of_a_small_graph() -> None:
    edges = [[(1, 1)], [(2, 0)], [(0, 1), (3, 1)], [(4, 1)], [(3, 1)], [(5, 1)], []]
    assert [sorted(component) for component in strong_components(edges)] == [[3, 4], [0, 1, 2]]
    assert shortest_circle(edges, {0, 1, 2}, [(0, 1)]) == [0, 1, 2]
    assert shortest_circle(edges, {0, 2}, [(2, 0)]) == []
    assert shortest_circle(edges, {3, 4}, [(3, 4)]) == [3, 4]


def test_components_of_a_long_circle_need_no_recursion() -> None:
    count = 50_000
    [component] = strong_components([[((vertex + 1) % count, 1)] for vertex in range(count)])
    assert len(component) == count
