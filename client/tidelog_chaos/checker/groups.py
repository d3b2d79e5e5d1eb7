"""The guarantees of a group: two-owners, committed-backwards, lost-commit and group-unseen, from its notes.

A partition belongs to a member from ``assigned`` until ``revoked``, ``lost`` or ``gone``, in the generation that the
member names. That is known at the member's notes, and between two that agree; in between, generations may change
unnoticed. There are two owners if two members have a partition in one generation at overlapping known times; and if a
member gives a partition up after another one has it in a generation that the first has only just reached, or a later
one. A member that is removed from its group continues in its old generation until it learns of that, as in Kafka: the
coordinator refuses its commits, and its next generation is later than all of that.

A committed offset goes back if a lower one follows in the group's log; and if a process was told of a higher one before
the commit of a lower one began, so that overlapping commits prove nothing. If members reorder their commits, as
librdkafka's do by repeating unanswered ones, that is permitted unless the two are known to be of different members: a
removed member must not commit. Every commit that a process was told of is in the log, as far as the log was read.

Once a group is ``drained``, an ``ok`` poll of a subscribed process must have returned each value that was acknowledged
before: at least once, to any member. Polls of other processes do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tidelog_chaos.checker.group_notes import NOTHING, Claim, Committed, GroupNotes, note_case
from tidelog_chaos.checker.polling import subscribers_polls
from tidelog_chaos.checker.transactions import OK, Transactions
from tidelog_chaos.history import Op, Process
from tidelog_chaos.verdict import Case, Findings


def find_group_faults(transactions: Transactions, notes: GroupNotes, findings: Findings) -> None:
    """Add two-owners, committed-backwards, lost-commit and group-unseen."""
    if not notes:
        return
    _Owners(findings).walk(notes.claims)
    steps = _StepsBack(notes, findings)
    steps.find_in_answers()
    steps.find_in_log()
    _find_lost_commits(notes, findings)
    if notes.drained is None:
        findings.notes.append("The group was not drained: whether its members polled everything is not known.")
    else:
        _find_unseen(transactions, notes.drained, findings)


def group_statistics(notes: GroupNotes) -> dict[str, Any]:
    """Return the activity of a group as numbers; empty without one."""
    if not notes:
        return {}
    return {
        "settings": dict(notes.settings),
        "members": len({claim.member for claim in notes.claims}),
        "assignments": sum(claim.op.f == "assigned" for claim in notes.claims),
        "generations": len({claim.generation for claim in notes.claims} - {NOTHING}),
        "acknowledged": len(notes.committed),
        "logged": len(notes.logged),
        "drained": notes.drained is not None,
    }


@dataclass(slots=True)
class _Tenure:
    """A member's ownership of a key in a generation, for the time for which it is known."""

    member: Process
    generation: int
    first: Op
    last: Op


@dataclass(slots=True)
class _Member:
    """The state of a member; ``held`` has its current keys, ``past`` its earlier ones of the same generation."""

    generation: int = NOTHING
    held: dict[str, _Tenure] = field(default_factory=dict)
    past: list[tuple[str, _Tenure]] = field(default_factory=list)


class _Owners:
    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._members: dict[Process, _Member] = {}
        self._known: dict[str, list[_Tenure]] = {}
        self._told: set[tuple[str, int, int]] = set()

    def walk(self, claims: list[Claim]) -> None:
        for claim in claims:
            member = self._members.setdefault(claim.member, _Member())
            if claim.op.f in ("assigned", "holds", "revoked"):
                self._confirm(member, claim)
            if claim.op.f == "assigned":
                for key in claim.keys:
                    self._begin(key, member, claim)
            elif claim.op.f == "gone":
                member.held.clear()
            else:
                for key in claim.keys:
                    if key in member.held:
                        member.past.append((key, member.held.pop(key)))
                if claim.op.f == "lost":
                    member.generation, member.past = NOTHING, []

    def _confirm(self, member: _Member, claim: Claim) -> None:
        if member.generation == claim.generation:
            for key, tenure in member.held.items():
                tenure.last = claim.op
                self._compare(key, tenure)
            return
        before = [*member.past, *member.held.items()]
        member.generation, member.past = claim.generation, []
        for key in list(member.held):
            self._begin(key, member, claim)
        if claim.generation != NOTHING:
            for key, tenure in before:
                self._compare_with_next(key, tenure, claim.generation)

    def _begin(self, key: str, member: _Member, claim: Claim) -> None:
        member.held[key] = tenure = _Tenure(claim.member, claim.generation, claim.op, claim.op)
        if claim.generation != NOTHING:
            self._known.setdefault(key, []).append(tenure)
            self._compare(key, tenure)

    def _compare(self, key: str, mine: _Tenure) -> None:
        """Compare with the others; notes come in order of time, so everything that began, began before now."""
        for other in self._known.get(key, ()):
            if other.generation == mine.generation and mine.first.index <= other.last.index:
                self._tell(key, mine.generation, other, mine)

    def _compare_with_next(self, key: str, mine: _Tenure, generation: int) -> None:
        """Compare with the next generation. The member was in the group all the time: a removed one returns later."""
        for other in self._known.get(key, ()):
            is_later = mine.generation < other.generation and generation <= other.generation
            overlap = other.first.index < mine.last.index and mine.first.index <= other.last.index
            if is_later and mine.generation != NOTHING and overlap:
                self._tell(key, other.generation, mine, other)

    def _tell(self, key: str, generation: int, one: _Tenure, other: _Tenure) -> None:
        pair = (key, min(one.first.index, other.first.index), max(one.first.index, other.first.index))
        if one.member != other.member and pair not in self._told:
            self._told.add(pair)
            self._findings.add("two-owners", partial(_owners_case, key, generation, one, other))


def _owners_case(key: str, generation: int, *both: _Tenure) -> Case:
    tenures = sorted(both, key=lambda tenure: tenure.first.index)
    members = [tenure.member for tenure in tenures]
    ops = sorted({op.index: op for tenure in tenures for op in (tenure.first, tenure.last)}.items())
    first = "" if tenures[0].generation == generation else f", member {members[0]} since {tenures[0].generation}"
    return {
        "text": f"{key}: members {members[0]} and {members[1]} both had it in generation {generation}{first}",
        "key": key,
        "generation": generation,
        "members": members,
        "ops": [note_case(op, [key]) for _, op in ops],
    }


class _StepsBack:
    """Finds committed-backwards."""

    def __init__(self, notes: GroupNotes, findings: Findings) -> None:
        self._notes = notes
        self._findings = findings
        members = {claim.member for claim in notes.claims}
        self._committers: dict[tuple[str, int], set[Process]] = {}
        for note in notes.committed:
            if note.by in members:
                for place in note.offsets.items():
                    self._committers.setdefault(place, set()).add(note.by)

    def find_in_answers(self) -> None:
        ended = iter(self._notes.committed)
        waiting = next(ended, None)
        highest: dict[str, Committed] = {}
        for later in sorted(self._notes.committed, key=lambda note: note.since_ns):
            while waiting is not None and waiting.op.time_ns < later.since_ns:
                for key, offset in waiting.offsets.items():
                    if key not in highest or offset > highest[key].offsets[key]:
                        highest[key] = waiting
                waiting = next(ended, None)
            for key, offset in later.offsets.items():
                before = highest.get(key)
                if before is not None and offset < before.offsets[key]:
                    self._tell(key, (before.offsets[key], offset), (before.op, later.op))

    def find_in_log(self) -> None:
        highest: dict[str, tuple[Op, int]] = {}
        for op, key, offset in self._notes.logged:
            before = highest.get(key)
            if before is not None and offset < before[1]:
                self._tell(key, (before[1], offset), (before[0], op))
            else:
                highest[key] = (op, offset)

    def _tell(self, key: str, offsets: tuple[int, int], behind: tuple[Op, Op]) -> None:
        is_permitted = self._notes.reorders_commits and self._may_be_of_one_member(key, offsets)
        self._findings.add("committed-backwards", partial(_back_case, key, offsets, behind), is_permitted)

    def _may_be_of_one_member(self, key: str, offsets: tuple[int, int]) -> bool:
        higher, lower = (self._committers.get((key, offset)) for offset in offsets)
        return offsets[1] != NOTHING and (higher is None or lower is None or not higher.isdisjoint(lower))


def _find_lost_commits(notes: GroupNotes, findings: Findings) -> None:
    logged = {(key, offset) for _, key, offset in notes.logged}
    for committed in notes.committed:
        if committed.op.time_ns < notes.logged_ns:
            for key, offset in committed.offsets.items():
                if offset != NOTHING and (key, offset) not in logged:
                    findings.add("lost-commit", partial(_lost_case, key, offset, committed.op))


def _lost_case(key: str, offset: int, op: Op) -> Case:
    text = f"{key}: the commit of {offset:,} was acknowledged, and the log of the group does not have it"
    return {"text": text, "key": key, "offset": offset, "ops": [note_case(op, [key])]}


def _back_case(key: str, offsets: tuple[int, int], behind: tuple[Op, Op]) -> Case:
    after = "nothing" if offsets[1] == NOTHING else f"{offsets[1]:,}"
    return {
        "text": f"{key}: {offsets[0]:,} was committed, {after} was found afterwards",
        "key": key,
        "offsets": list(offsets),
        "ops": [note_case(op, [key]) for op in behind],
    }


def _find_unseen(transactions: Transactions, drained: Op, findings: Findings) -> None:
    polled = bytearray(len(transactions.value_names))
    for value, _ in subscribers_polls(transactions):
        polled[value] = 1
    for transaction, value, _ in transactions.sends():
        is_due = transactions.types[transaction] == OK and transactions.indexes[transaction] < drained.index
        if is_due and not polled[value]:
            findings.add("group-unseen", partial(_unseen_case, transaction, value, transactions, drained))


def _unseen_case(transaction: int, value: int, transactions: Transactions, drained: Op) -> Case:
    key, name = transactions.name(value)
    return {
        "text": f"{key}: value {name} was acknowledged and no member of the group polled it",
        "key": key,
        "value": name,
        "ops": [transactions.as_operation(transaction, [value]), note_case(drained, [key])],
    }
