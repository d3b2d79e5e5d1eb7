"""The report of a test run's durations."""

from __future__ import annotations

import pytest
from durations import LONG_S, Durations, FileDuration


def test_durations_of_a_file_are_the_sum_of_all_phases_of_its_tests_longest_file_first() -> None:
    durations = Durations()
    durations.add("a.py::one", "call", 1.0)
    for phase, seconds in (("setup", 2.0), ("call", 0.5), ("teardown", 0.25)):
        durations.add("b.py::one[x::y]", phase, seconds)
    durations.add("b.py::two", "call", 0.25, processor_s=0.5)
    durations.add("b.py::two", "teardown", 0.0, processor_s=1.5)
    assert durations.by_file() == [FileDuration("b.py", 2, 3.0, 2.0), FileDuration("a.py", 1, 1.0)]


@pytest.mark.parametrize("mark", ["slow", "chaos", "compat"])
def test_long_test_is_named_unless_a_mark_announces_it(mark: str) -> None:
    durations = Durations()
    durations.add("a.py::long", "call", LONG_S + 1, ["costly"])
    durations.add("a.py::longer", "call", LONG_S + 2)
    durations.add("a.py::marked", "call", LONG_S + 3, [mark])
    durations.add("a.py::first_of_a_fixture", "setup", LONG_S + 4)
    durations.add("a.py::short", "call", LONG_S)
    assert [test for test, _ in durations.unannounced()] == ["a.py::longer", "a.py::long"]


def test_report_has_files_only_when_asked_and_nothing_when_all_tests_are_short() -> None:
    durations = Durations()
    durations.add("a.py::short", "call", 0.5)
    assert [*durations.lines(files=False)] == []
    assert [*durations.lines(files=True)] == ["     0.5 s      0.0 CPU s      1 tests  a.py"]
    durations.add("a.py::long", "call", 12.0)
    assert [*durations.lines(files=False)] == [
        "more than 10 s and not marked slow, on this machine:",
        "    12.0 s  a.py::long",
    ]
