"""The guarantees of a query that copies topics exactly once (:mod:`.copy_notes` has the form of its notes).

An output has each committed value of its input once, in the order of the input, and nothing else. The committed values
of an input are those that an ``ok`` poll returned; the general checks compare them with the sends. Two copies of a
value are a ``duplicate``. In addition:

- copy-missing: an ``ok`` poll returned a value of an input, and none returned its copy, although some poll of the
  output began after ``copied``. An input that is not copied up to its end is a copy-behind instead.
- copy-of-aborted: a poll returned a copy of a value whose send failed, or whose transaction was aborted.
- copy-invented: a poll returned a copy of a value that no poll of the input returned, or that nobody sent.
- copy-disordered: a copy has a higher offset than another one whose original comes later in the input.
- copy-behind: the query had not copied an input up to its end in time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from tidelog_chaos.checker.copy_notes import CopyNotes
from tidelog_chaos.checker.loss import last_looks
from tidelog_chaos.checker.transactions import FAIL, UNKNOWN, Transactions, Visibility
from tidelog_chaos.checker.versions import VersionOrders
from tidelog_chaos.history import Op
from tidelog_chaos.verdict import Case, Findings


def find_copy_faults(
    transactions: Transactions,
    visibility: Visibility,
    versions: VersionOrders,
    notes: CopyNotes,
    findings: Findings,
) -> None:
    """Add the anomalies that the module describes."""
    if not notes.outputs:
        return
    checks = _CopyChecks(transactions, visibility, versions, notes, findings)
    for taken, given in sorted(notes.outputs.items()):
        checks.compare(taken, given)
    if notes.copied is None:
        findings.notes.append("It is unknown how much the query should have copied: there is no line copied.")
    else:
        for key, place in sorted(notes.behind.items()):
            findings.add("copy-behind", partial(_behind_case, key, place, notes.copied))


def copy_statistics(transactions: Transactions, visibility: Visibility, notes: CopyNotes) -> dict[str, Any]:
    """Return the number of copies, starts and kills; empty without a query."""
    if not notes.outputs:
        return {}
    given = set(notes.outputs.values())
    read = zip(transactions.key_of_value, visibility.first_reader, strict=True)
    copied = sum(transactions.keys[key] in given and reader != UNKNOWN for key, reader in read)
    pauses = (after - before for before, after in pairwise(notes.committed_ns))
    return {
        "copies": copied,
        "batches": len(notes.committed_ns),
        "starts": notes.starts,
        "kills": dict(sorted(notes.kills.items())),
        "failures": dict(notes.failures.most_common()),
        "longest_pause_s": round(max(pauses, default=0) / 1e9, 3),
        "copied": notes.copied is not None and not notes.behind,
    }


class _CopyChecks:
    def __init__(
        self,
        transactions: Transactions,
        visibility: Visibility,
        versions: VersionOrders,
        notes: CopyNotes,
        findings: Findings,
    ) -> None:
        self._transactions = transactions
        self._visibility = visibility
        self._versions = versions
        self._notes = notes
        self._findings = findings
        self._values: dict[str, dict[Hashable, int]] = {}
        """The numbers of the values of each key by their names."""
        for value, name in enumerate(transactions.value_names):
            key = transactions.keys[transactions.key_of_value[value]]
            self._values.setdefault(key, {})[name] = value
        self._looks: Mapping[str, int] = dict(zip(transactions.keys, last_looks(transactions), strict=True))

    def compare(self, taken: str, given: str) -> None:
        """Compare an output with its input."""
        originals, copies = self._values.get(taken, {}), self._values.get(given, {})
        self._find_missing(taken, given, originals, copies)
        for name, copy in copies.items():
            if self._is_read(copy):
                self._judge(copy, originals.get(name))
        self._find_disordered(originals, copies)

    def _find_missing(
        self, taken: str, given: str, originals: Mapping[Hashable, int], copies: Mapping[Hashable, int]
    ) -> None:
        copied = self._notes.copied
        if copied is None or self._looks.get(given, UNKNOWN) <= self._notes.copied_position:
            return
        for name, original in originals.items():
            is_copied = name in copies and self._is_read(copies[name])
            if self._is_read(original) and not is_copied and taken not in self._notes.behind:
                self._findings.add("copy-missing", partial(self._missing_case, original, given, copied))

    def _judge(self, copy: int, original: int | None) -> None:
        if original is not None and self._is_read(original):
            return
        senders = () if original is None else self._transactions.senders(original)
        if senders and all(self._transactions.types[sender] == FAIL for sender in senders):
            self._findings.add("copy-of-aborted", partial(self._copy_case, copy, "its send was aborted", senders))
        else:
            reason = "no poll of the input returned it" if senders else "nobody sent it"
            self._findings.add("copy-invented", partial(self._copy_case, copy, reason, senders))

    def _find_disordered(self, originals: Mapping[Hashable, int], copies: Mapping[Hashable, int]) -> None:
        places = self._versions.index_of
        known = {
            copy: originals[name]
            for name, copy in copies.items()
            if name in originals and places[copy] != UNKNOWN and places[originals[name]] != UNKNOWN
        }
        for before, after in pairwise(sorted(known, key=lambda copy: places[copy])):
            if places[known[before]] > places[known[after]]:
                self._findings.add("copy-disordered", partial(self._disordered_case, before, after))

    def _is_read(self, value: int) -> bool:
        return bool(self._visibility.first_reader[value] != UNKNOWN)

    # Cases

    def _missing_case(self, original: int, given: str, note: Op) -> Case:
        key, name = self._transactions.name(original)
        reader = self._transactions.as_operation(self._visibility.first_reader[original], [original])
        return {
            "text": f"{given}: there is no copy of value {name} of {key}",
            "key": given,
            "value": name,
            "ops": [reader, note.as_json()],
        }

    def _copy_case(self, copy: int, reason: str, senders: Any) -> Case:
        key, name = self._transactions.name(copy)
        reader = self._transactions.as_operation(self._visibility.first_reader[copy], [copy])
        return {
            "text": f"{key}: value {name} was polled, and {reason}",
            "key": key,
            "value": name,
            "ops": [*(self._transactions.as_operation(sender) for sender in senders), reader],
        }

    def _disordered_case(self, before: int, after: int) -> Case:
        key, first = self._transactions.name(before)
        second = self._transactions.name(after)[1]
        readers = {self._visibility.first_reader[copy]: copy for copy in (before, after)}
        return {
            "text": f"{key}: value {first} comes before value {second}, unlike in the input",
            "key": key,
            "values": [first, second],
            "ops": [self._transactions.as_operation(reader, [copy]) for reader, copy in readers.items()],
        }


def _behind_case(key: str, place: tuple[int, int], note: Op) -> Case:
    return {
        "text": f"{key}: the query has copied up to offset {place[0]} of {place[1]}",
        "key": key,
        "offsets": list(place),
        "ops": [note.as_json()],
    }
