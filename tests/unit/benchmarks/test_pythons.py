"""The comparison of Python versions, without a cluster."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import python_worker
from benchmarks.engines import pure_engine
from benchmarks.pythons import Interpreter, compared, name_apart
from tidelog_foundation.records import _pure, builder


@contextlib.contextmanager
def _interpreter(program: str, name: str = "") -> Iterator[Interpreter]:
    """Yield an interpreter whose worker runs a program."""
    pipe = subprocess.PIPE
    worker = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True)
    yield Interpreter(worker, Path("python3"), name)
    worker.communicate()


def test_compared_has_a_line_for_each_interpreter_but_the_first() -> None:
    figures = {"Python 3.11": [2.0, 20.0, 2.0], "Python 3.12": [1.0, 10.0, 2.0], "Python 3.13": [4.0, 40.0, 4.0]}

    faster, slower = compared("start", "s", figures)

    assert (faster.name, faster.value, faster.unit) == ("Python 3.12: start", 2.0, "s")
    assert (faster.compared_with, faster.ratio) == ("Python 3.11 at 2", 2.0)
    assert (slower.name, slower.ratio) == ("Python 3.13: start", 0.5)


def test_compared_of_one_interpreter_alone_has_no_ratio() -> None:
    [line] = compared("start", "s", {"Python 3.11": [2.0]})

    assert (line.name, line.value, line.compared_with, line.ratio) == ("Python 3.11: start", 2.0, None, None)


def test_describe_tells_how_the_interpreter_was_configured() -> None:
    answer = (
        '{"version": "3.14.1t", "has_pgo": true, "has_lto": true, "compiled_engine": false, "bootstrap_servers": "a:1"}'
    )
    with _interpreter(f"input(); print({answer!r})") as interpreter:
        interpreter.describe()

    assert interpreter.name == "Python 3.14.1t"
    assert interpreter.description == "3.14.1t (configured with PGO and LTO, record engine in Python)"
    assert interpreter.bootstrap_servers == "a:1"


def test_ask_names_the_interpreter_whose_worker_has_ended() -> None:
    with _interpreter("") as interpreter, pytest.raises(RuntimeError, match="worker of python3 has ended"):
        interpreter.restart()


def test_interpreters_of_the_same_version_are_numbered() -> None:
    with (
        _interpreter("", "Python 3.11") as one,
        _interpreter("", "Python 3.12") as other,
        _interpreter("", "Python 3.11") as again,
    ):
        name_apart([one, other, again])

    assert [one.name, other.name, again.name] == ["Python 3.11 no. 1", "Python 3.12", "Python 3.11 no. 3"]


def test_pure_engine_is_in_use_within_the_block_alone() -> None:
    before = vars(builder)["engine"]

    with pure_engine():
        assert vars(builder)["engine"] is _pure

    assert vars(builder)["engine"] is before


def test_worker_measures_both_engines() -> None:
    found = python_worker.engines()

    assert {"pure build", "pure check", "pure decode"} <= set(found)
    assert all(isinstance(ns, float) and ns > 0 for ns in found.values())
