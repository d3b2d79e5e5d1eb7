"""The time that the tests take: the sum of each file, and long tests that no mark announces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

LONG_S = 10.0
"""A test that takes longer is marked ``slow``: it then begins before short ones, see ``long_first.py``."""
_LONG_MARKS = frozenset({"slow", "chaos", "compat"})


@dataclass(frozen=True, slots=True)
class FileDuration:
    """The number of tests of a file, and the time and processor time that they took with their fixtures."""

    file: str
    tests: int
    seconds: float
    processor_s: float = 0.0


@dataclass(slots=True)
class Durations:
    """The durations of the tests of a run, collected phase by phase."""

    _of_phases: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    _processor_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _announced: set[str] = field(default_factory=set)

    def add(self, test: str, phase: str, seconds: float, marks: Collection[str] = (), processor_s: float = 0.0) -> None:
        """Add one phase of a test: ``setup``, ``call`` or ``teardown``. The test is named by its id."""
        self._of_phases[test][phase] = seconds
        self._processor_s[test.partition("::")[0]] += processor_s
        if not _LONG_MARKS.isdisjoint(marks):
            self._announced.add(test)

    def by_file(self) -> list[FileDuration]:
        """Return the sums of the files, the longest first."""
        found: dict[str, list[float]] = defaultdict(list)
        for test, phases in self._of_phases.items():
            found[test.partition("::")[0]].append(sum(phases.values()))
        sums = (
            FileDuration(file, len(seconds), sum(seconds), self._processor_s[file]) for file, seconds in found.items()
        )
        return sorted(sums, key=lambda one: (-one.seconds, one.file))

    def unannounced(self) -> list[tuple[str, float]]:
        """Return the tests that took longer than LONG_S without a mark that says so, the longest first.

        Fixtures are not counted, since the first test that uses one waits for it.
        """
        calls = ((test, phases.get("call", 0.0)) for test, phases in self._of_phases.items())
        long = [(test, seconds) for test, seconds in calls if seconds > LONG_S and test not in self._announced]
        return sorted(long, key=lambda one: (-one[1], one[0]))

    def lines(self, *, files: bool) -> Iterable[str]:
        """Return the lines of a report: tests without a mark and, if asked for, the files."""
        if files:
            yield from (
                f"{one.seconds:8.1f} s {one.processor_s:8.1f} CPU s {one.tests:6} tests  {one.file}"
                for one in self.by_file()
            )
        unannounced = self.unannounced()
        if unannounced:
            yield f"more than {LONG_S:.0f} s and not marked slow, on this machine:"
            yield from (f"{seconds:8.1f} s  {test}" for test, seconds in unannounced)
