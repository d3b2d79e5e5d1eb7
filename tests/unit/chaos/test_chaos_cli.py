"""``tidelog chaos check`` and ``report``: what they print, and how they exit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidelog_cli.commands import app

HISTORIES = Path(__file__).parent / "histories"


def chaos(*args: str | Path) -> Result:
    return CliRunner().invoke(app, ["chaos", *map(str, args)])


def test_check_of_a_valid_history_exits_with_0() -> None:
    result = chaos("check", HISTORIES / "healthy.jsonl")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "valid: 7 operations, 1 key, 4 values acknowledged, 4 read\n"


def test_check_prints_anomalies_with_the_operations_behind_them_and_exits_with_1() -> None:
    result = chaos("check", HISTORIES / "lost-write.invalid.jsonl")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("NOT VALID: 5 operations")
    assert "lost-write      1  an anomaly  an acknowledged value was passed over by all readers" in lines
    at = lines.index("  k0: value 2 at offset 1 was never polled, though offset 2 was")
    assert lines[at + 1] == '    3: 0.000 s, process 0, ok send [["send", "k0", [1, 2]]]'
    assert lines[at + 2] == '    9: 0.000 s, process 2, ok poll [["poll", {"k0": [[2, 3]]}]]'


def test_check_names_what_is_permitted_and_exits_with_0() -> None:
    result = chaos("check", HISTORIES / "poll-skip-under-subscribe.permitted.jsonl")
    assert result.exit_code == 0
    assert "poll-skip      1  permitted" in result.stdout


def test_check_prints_json() -> None:
    result = chaos("check", "--json", HISTORIES / "duplicate.invalid.jsonl")
    assert result.exit_code == 1
    verdict = json.loads(result.stdout)
    assert verdict["valid"] is False
    assert [case["value"] for case in verdict["anomalies"]["duplicate"]] == [1]
    assert list(verdict["permitted"]) == ["G0"]
    assert json.loads(chaos("check", "--json", HISTORIES / "healthy.jsonl").stdout)["anomalies"] == {}


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["{"], "line 2: not JSON"),
        (['{"process": 0, "type": "ok"}'], "line 2: f missing"),
        (['{"process": 0, "type": "ok", "f": "send", "value": 7}'], "line 2: index 1: a transaction's value is a list"),
        (
            [
                "",
                '{"process": 0, "type": "invoke", "f": "send", "value": 7}',
                '{"process": 1, "type": "ok", "f": "crash"}',
            ],
            "line 3: index 1: a transaction's value is a list",
        ),
    ],
)
def test_check_names_the_line_of_a_bad_file_and_exits_with_2(tmp_path: Path, lines: Sequence[str], text: str) -> None:
    path = tmp_path / "history.jsonl"
    good = '{"index": 0, "process": "nemesis", "type": "info", "f": "start-kill", "time": 0}'
    path.write_text("\n".join([good, *lines]) + "\n")
    result = chaos("check", path)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"tidelog: error: {path}: {text}")


def test_check_of_nothing_exits_with_2(tmp_path: Path) -> None:
    for text in ("", "\n \n"):
        (tmp_path / "empty.jsonl").write_text(text)
        result = chaos("check", "--json", tmp_path / "empty.jsonl")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.endswith("empty.jsonl: it is empty\n")
    assert chaos("check", tmp_path / "absent.jsonl").exit_code == 2
    assert chaos("report", tmp_path).exit_code == 2


@pytest.mark.parametrize("file", ["replicas.json", "run.json"])
def test_file_of_a_run_that_is_no_text_is_named(tmp_path: Path, file: str) -> None:
    (tmp_path / "history.jsonl").write_text("")
    (tmp_path / file).write_bytes(b"\x9c\xff")
    result = chaos("report", tmp_path)
    assert result.exit_code == 2
    assert f"{file} is not JSON" in result.stderr


def test_check_of_a_run_compares_its_replicas(tmp_path: Path) -> None:
    shutil.copy(HISTORIES / "healthy.jsonl", tmp_path / "history.jsonl")
    assert chaos("check", tmp_path).exit_code == 0
    (tmp_path / "replicas.json").write_text('{"replicas": {"k0": {"1": ["0-3:aa"], "2": ["0-3:bb"]}}}')
    result = chaos("check", tmp_path)
    assert result.exit_code == 1
    assert "k0: the replicas differ from entry 0 on: 0-3:aa on 1 and 0-3:bb on 2" in result.stdout
    (tmp_path / "other.json").write_text('{"k0": {"1": ["0-3:aa"], "2": ["0-3:aa"]}}')
    assert chaos("check", tmp_path, "--replicas", tmp_path / "other.json").exit_code == 0


def test_report_writes_the_page_and_exits_as_the_verdict_says(tmp_path: Path) -> None:
    shutil.copy(HISTORIES / "healthy.jsonl", tmp_path / "history.jsonl")
    result = chaos("report", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.startswith("VALID: nothing lost, nothing twice, nothing out of order\n")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    shutil.copy(HISTORIES / "unseen.invalid.jsonl", tmp_path / "history.jsonl")
    result = chaos("report", tmp_path, "-o", tmp_path / "other.html")
    assert result.exit_code == 1
    assert (tmp_path / "other.html").exists()
    result = chaos("report", tmp_path, "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert (document["good"], document["problems"], document["report"]) == (False, [], str(tmp_path / "report.html"))
    assert list(document["verdict"]["anomalies"]) == ["unseen"]
    (tmp_path / "run.json").write_text("[")
    assert chaos("report", tmp_path).exit_code == 2
