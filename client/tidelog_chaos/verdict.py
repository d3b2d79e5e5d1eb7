"""The results of a check: anomalies, permitted findings that look like anomalies, and statistics of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

Case = dict[str, Any]
"""One finding: ``text`` is a sentence, ``ops`` has the operations behind it, other members the details."""

DEFAULT_CASES = 32
"""The number of findings of a name that are written out; all are counted."""

DESCRIPTIONS: Mapping[str, str] = {
    "inconsistent-offsets": "an offset held more than one value",
    "duplicate": "a value is at more than one offset",
    "lost-write": "an acknowledged value was passed over by all readers",
    "unseen": "an acknowledged value was never polled",
    "phantom-read": "a value was polled that nobody sent",
    "G1a": "a value was polled whose send had failed",
    "precommitted-read": "a transaction polled what it had sent itself",
    "int-poll-skip": "one operation polled past values that exist",
    "int-nonmonotonic-poll": "one operation polled backwards, or a value twice",
    "poll-skip": "a process went on polling behind values that it had not had",
    "nonmonotonic-poll": "a process went on polling before the place where it was",
    "int-send-skip": "values of others are between two that one operation sent",
    "int-nonmonotonic-send": "two values that one operation sent are in the wrong order",
    "nonmonotonic-send": "values that a process sent one after the other are in the wrong order",
    "G0": "transactions wrote in orders that contradict each other, or real time",
    "G1c": "information flowed in a circle between transactions, or against real time",
    "group-unseen": "an acknowledged value was polled by no member of the group",
    "committed-backwards": "an offset that the group had committed went back",
    "lost-commit": "an acknowledged commit of the group is not in its log",
    "two-owners": "a partition was two members' in one generation",
    "early-read": "a value was polled before the commit of its transaction was requested",
    "torn-transaction": "a part of a transaction was polled, and another part never was",
    "zombie-commit": "a transaction of a fenced producer was committed",
    "output-twice": "a consumed record has its output in two committed transactions",
    "output-missing": "the group has passed a record without its output",
    "output-ahead": "a record has its output, and the group has not passed it",
    "unstable-offset": "the group was at an offset that no committed transaction has set",
    "hanging-transaction": "the last stable offset of a partition did not move on in time",
    "copy-missing": "a committed value of an input has no copy",
    "copy-of-aborted": "a value was copied whose send was aborted",
    "copy-invented": "a copy was polled of a value that the input does not have",
    "copy-disordered": "two copies are in another order than their originals",
    "copy-behind": "the query had not copied everything in time",
    "divergent-replicas": "replicas differ below the high watermark",
}
"""Every name that a verdict may have, with its meaning, in the order of display."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of :func:`tidelog_chaos.checker.check`; both mappings have only names that occurred."""

    valid: bool
    """True if there is no anomaly."""
    anomalies: dict[str, list[Case]]
    permitted: dict[str, list[Case]]
    """Findings that a correct log may show; docs/chaos.md lists them with the reasons."""
    counts: dict[str, dict[str, int]]
    """The number of each name, under ``anomalies`` and ``permitted``, including those not written out."""
    statistics: dict[str, Any]
    notes: tuple[str, ...] = ()
    """Limits of the result, a sentence each, for example that nobody read at the end."""

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``tidelog chaos check --json`` prints."""
        return {
            "valid": self.valid,
            "anomalies": self.anomalies,
            "permitted": self.permitted,
            "counts": self.counts,
            "notes": list(self.notes),
            "statistics": self.statistics,
        }

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Verdict:
        """Return the verdict from such an object."""
        return cls(
            bool(members["valid"]),
            dict(members.get("anomalies", {})),
            dict(members.get("permitted", {})),
            dict(members.get("counts", {})),
            dict(members.get("statistics", {})),
            tuple(members.get("notes", ())),
        )


@dataclass(slots=True)
class Findings:
    """Collects findings while a history is checked; writes out the first ones of each name."""

    limit: int = DEFAULT_CASES
    anomalies: dict[str, list[Case]] = field(default_factory=dict)
    permitted: dict[str, list[Case]] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=lambda: {"anomalies": {}, "permitted": {}})
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, case: Callable[[], Case], permitted: bool = False) -> None:
        """Add a finding; ``case`` is called only if the finding is written out."""
        assert name in DESCRIPTIONS, name
        counts = self.counts["permitted" if permitted else "anomalies"]
        counts[name] = counts.get(name, 0) + 1
        if counts[name] <= self.limit:
            (self.permitted if permitted else self.anomalies).setdefault(name, []).append(case())

    def verdict(self, statistics: dict[str, Any]) -> Verdict:
        """Return the findings, in the order of :data:`DESCRIPTIONS`."""
        return Verdict(
            not self.counts["anomalies"],
            _ordered(self.anomalies),
            _ordered(self.permitted),
            {kind: _ordered(counts) for kind, counts in self.counts.items()},
            statistics,
            tuple(self.notes),
        )


def _ordered(by_name: Mapping[str, T]) -> dict[str, T]:
    return {name: by_name[name] for name in DESCRIPTIONS if name in by_name}
