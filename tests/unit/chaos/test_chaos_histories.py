"""Hand-made histories, the right ones beside the wrong ones: what each shows, and nothing else, is found.

``histories/expected.json`` has for each file the names of the anomalies, and of what is permitted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tidelog_chaos.checker import check
from tidelog_chaos.history import read_history
from tidelog_chaos.verdict import DESCRIPTIONS, Verdict

HISTORIES = Path(__file__).parent / "histories"
EXPECTED: Mapping[str, Mapping[str, list[str]]] = json.loads((HISTORIES / "expected.json").read_text())


def verdict_of(name: str) -> Verdict:
    return check(read_history((HISTORIES / f"{name}.jsonl").read_text().splitlines()))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_history_has_the_verdict_that_was_worked_out_by_hand(name: str) -> None:
    verdict = verdict_of(name)
    assert {"anomalies": list(verdict.anomalies), "permitted": list(verdict.permitted)} == EXPECTED[name]
    assert verdict.valid is (not EXPECTED[name]["anomalies"])
    assert Verdict.from_json(json.loads(json.dumps(verdict.as_json()))) == verdict


def test_every_file_is_expected_and_every_name_has_a_right_and_a_wrong_history() -> None:
    assert {path.stem for path in HISTORIES.glob("*.jsonl")} == set(EXPECTED)
    shown = {name for expected in EXPECTED.values() for names in expected.values() for name in names}
    assert shown == set(DESCRIPTIONS) - {"divergent-replicas"}
    for name in shown:
        prefix = name.split("-read")[0]
        assert any(file.startswith(prefix) and not EXPECTED[file]["anomalies"] for file in EXPECTED), name


def test_findings_name_the_operations_behind_them() -> None:
    for file in EXPECTED:
        verdict = verdict_of(file)
        text = (HISTORIES / f"{file}.jsonl").read_text()
        lines = [json.loads(line) for line in text.splitlines() if line]
        for cases in (*verdict.anomalies.values(), *verdict.permitted.values()):
            for case in cases:
                assert case["text"]
                assert case["ops"]
                for op in case["ops"]:
                    line = lines[op["index"]]
                    assert (op["process"], op["f"], op["time"]) == (line["process"], line["f"], line["time"])


def case_of(file: str, name: str) -> dict[str, Any]:
    verdict = verdict_of(file)
    [case] = {**verdict.anomalies, **verdict.permitted}[name]
    return {member: value for member, value in case.items() if member not in ("text", "ops")}


@pytest.mark.parametrize(
    ("file", "name", "case"),
    [
        (
            "inconsistent-offsets.invalid",
            "inconsistent-offsets",
            {"key": "k0", "offset": 1, "index": 1, "values": [2, 9]},
        ),
        ("duplicate.invalid", "duplicate", {"key": "k0", "value": 1, "count": 2, "offsets": [0, 2]}),
        (
            "lost-write.invalid",
            "lost-write",
            {"key": "k0", "value": 2, "offset": 1, "index": 1, "max_read_index": 2},
        ),
        ("unseen.invalid", "unseen", {"key": "k0", "value": 3}),
        ("G1a.invalid", "G1a", {"key": "k0", "value": 2}),
        ("precommitted-read.invalid", "precommitted-read", {"key": "x", "value": 1}),
        ("int-poll-skip.invalid", "int-poll-skip", {"key": "k0", "values": [1, 3], "delta": 2, "skipped": [2]}),
        ("int-nonmonotonic-poll.invalid", "int-nonmonotonic-poll", {"key": "k0", "values": [2, 1], "delta": -1}),
        ("poll-skip.invalid", "poll-skip", {"key": "k0", "values": [1, 3], "delta": 2, "skipped": [2]}),
        ("nonmonotonic-poll.invalid", "nonmonotonic-poll", {"key": "k0", "values": [3, 2], "delta": -1}),
        ("int-send-skip.permitted", "int-send-skip", {"key": "x", "values": [1, 3], "delta": 2, "skipped": [2]}),
        ("int-nonmonotonic-send.invalid", "int-nonmonotonic-send", {"key": "x", "values": [1, 2], "delta": -1}),
        ("nonmonotonic-send.invalid", "nonmonotonic-send", {"key": "x", "values": [1, 2], "delta": -1}),
        (
            "two-owners.invalid",
            "two-owners",
            {"key": "k0", "generation": 1, "members": [1, 2]},
        ),
        ("group-unseen.invalid", "group-unseen", {"key": "k0", "value": 2}),
        ("lost-commit.invalid", "lost-commit", {"key": "k0", "offset": 1}),
        ("committed-backwards.invalid", "committed-backwards", {"key": "k0", "offsets": [2, 1]}),
        ("committed-backwards-to-nothing.invalid", "committed-backwards", {"key": "k0", "offsets": [2, -1]}),
        (
            "G1c-with-ww.permitted",
            "G1c",
            {
                "steps": [
                    {"type": "wr", "from": 2, "to": 3, "key": "x", "value": 1},
                    {"type": "ww", "from": 3, "to": 2, "key": "y", "value": 2, "next_value": 3},
                ]
            },
        ),
        (
            "G1c-against-real-time.invalid",
            "G1c",
            {
                "steps": [
                    {"type": "wr", "from": 3, "to": 1, "key": "x", "value": 1},
                    {"type": "realtime", "from": 1, "to": 3},
                ]
            },
        ),
    ],
)
def test_finding_has_the_details(file: str, name: str, case: dict[str, Any]) -> None:
    assert case_of(file, name) == case
