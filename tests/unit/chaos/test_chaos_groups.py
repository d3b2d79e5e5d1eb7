"""A history's notes of a group: accepted and refused ones, and the results."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog_chaos.checker import check
from tidelog_chaos.history import GROUP, InvalidHistoryError, Op
from tidelog_chaos.report.summary import group_lines


def note(index: int, f: str, value: Any) -> Op:
    return Op(index, GROUP, "info", f, value, 10 * index)


def claim(index: int, f: str, member: int, generation: int, *keys: str) -> Op:
    return note(index, f, {"member": member, "generation": generation, "keys": list(keys)})


@pytest.mark.parametrize(
    ("f", "value"),
    [
        ("assigned", None),
        ("assigned", {"generation": 1, "keys": ["k0"]}),
        ("holds", {"member": 1, "generation": "last"}),
        ("committed", {"by": 1, "offsets": {"k0": 1}}),
        ("committed", {"by": 1, "since": 0, "offsets": {"k0": -2}}),
        ("logged", {"offsets": [["k0"]]}),
        ("drained", {"k0": 1}),
    ],
)
def test_note_that_is_none_is_refused_with_its_index(f: str, value: Any) -> None:
    with pytest.raises(InvalidHistoryError, match=f"index 7: .* is not what is noted of a group as {f}") as refused:
        check([note(7, f, value)])
    assert refused.value.index == 7


def test_notes_of_a_kind_that_is_not_known_are_passed_over() -> None:
    verdict = check([note(0, "renamed", {"member": 1}), note(1, "group", {"group.protocol": "consumer"})])
    assert verdict.valid
    assert verdict.statistics["group"] == {}
    assert not any("not known" in text for text in verdict.notes)


def test_statistics_say_how_much_a_group_did() -> None:
    verdict = check(
        [
            note(0, "group", {"group.protocol": "consumer"}),
            claim(1, "holds", 1, -1),
            claim(2, "assigned", 1, 1, "k0", "k1"),
            claim(3, "revoked", 1, 2, "k1"),
            claim(4, "assigned", 2, 2, "k1"),
            note(5, "committed", {"by": 1, "since": 45, "offsets": {"k0": 4}}),
            note(6, "logged", {"offsets": [["k0", 3], ["k0", 4]]}),
            note(7, "drained", {"ends": {}}),
        ]
    )
    assert verdict.statistics["group"] == {
        "settings": {"group.protocol": "consumer"},
        "members": 2,
        "assignments": 2,
        "generations": 2,
        "acknowledged": 1,
        "logged": 2,
        "drained": True,
    }
    assert list(group_lines(verdict.statistics["group"])) == [
        "",
        "group of the protocol consumer: 2 members, 2 assignments in 2 generations, 2 offsets committed",
    ]
    assert list(group_lines({})) == []


def test_two_owners_are_told_once_however_often_they_say_so_and_with_their_key_alone() -> None:
    ops = [claim(0, "assigned", 1, 1, "k0", "k1"), claim(1, "assigned", 2, 1, "k1", "k2")]
    ops += [claim(index, "holds", 1 + index % 2, 1) for index in range(2, 9)]
    verdict = check(ops)
    assert verdict.counts["anomalies"] == {"two-owners": 1}
    [case] = verdict.anomalies["two-owners"]
    assert case["text"] == "k1: members 1 and 2 both had it in generation 1"
    assert [op["index"] for op in case["ops"]] == [0, 1, 2]
    assert all(op["value"]["keys"] in ([], ["k1"]) for op in case["ops"])


def test_member_that_is_in_no_generation_owns_nothing() -> None:
    ops = [claim(0, "assigned", 1, -1, "k0"), claim(1, "assigned", 2, -1, "k0"), claim(2, "holds", 1, -1)]
    assert check(ops).valid


def test_lower_offset_is_compared_with_the_highest_before_it() -> None:
    """The last commit is not what the next one is held against: 9 was committed at some time."""
    committed = [("a", 5, 9), ("b", 15, 4), ("c", 25, 6), ("d", 35, 9)]
    ops = [
        note(index, "committed", {"by": by, "since": since, "offsets": {"k0": offset}})
        for index, (by, since, offset) in enumerate(committed, 1)
    ]
    verdict = check(ops)
    assert [case["offsets"] for case in verdict.anomalies["committed-backwards"]] == [[9, 4], [9, 6]]
    assert verdict.anomalies["committed-backwards"][0]["text"] == "k0: 9 was committed, 4 was found afterwards"


def test_lag_of_a_subscriber_is_that_of_what_it_polls_and_not_of_what_it_may_have_given_up() -> None:
    def op(index: int, process: int, kind: str, f: str, value: Any, time_ms: int) -> Op:
        return Op(index, process, kind, f, value, time_ms * 1_000_000)  # type: ignore[arg-type]

    def poll(index: int, process: int, time_ms: int, key: str, offset: int) -> list[Op]:
        asked = op(index, process, "invoke", "poll", [["poll"]], time_ms)
        return [asked, op(index + 1, process, "ok", "poll", [["poll", {key: [[offset, offset]]}]], time_ms + 1)]

    ops = [op(0, 1, "ok", "subscribe", ["x", "y"], 0), *poll(1, 1, 1, "x", 0)]
    ops += [op(3, 0, "ok", "send", [["send", "x", [1, 1]]], 5), *poll(4, 1, 100, "y", 0), *poll(6, 2, 110, "x", 1)]
    assert check(ops).statistics["realtime_lag"]["worst"]["lag_ms"] == 0
