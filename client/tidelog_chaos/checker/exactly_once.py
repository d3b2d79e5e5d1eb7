"""The guarantees of transactions, from their operations and notes (:mod:`.transaction_notes` has the form).

The general checks judge the records of a transaction as those of any operation: no value of an aborted one is polled
(G1a), each value of a committed one is polled (unseen, lost-write) and at one offset (duplicate), in the order of its
producer (nonmonotonic-send). A transaction *is committed* if it is ``ok``, or ``info`` and an ``ok`` poll returned one
of its values; after the final polls, any other ``info`` is aborted. In addition:

- early-read: a poll that ended before the commit was requested returned a value of the transaction.
- torn-transaction: an ``ok`` poll returned a value of a transaction, and none returned another one, although some poll
  of that key began after ``settled``. Before that, readers of another partition may be ahead.
- zombie-commit: a transaction is committed although its commit was first requested after another producer of the same
  transactional id had initialized; and that one began to do so after the transaction's own producer had.
- output-twice: two committed transactions have the output of one consumed record.
- output-ahead and output-missing compare the outputs with the group's offsets at the end. An offset that a committed
  transaction consumed is below the final offset of its key, and each value that was polled below it has an output.
- unstable-offset: somebody was told an offset of the group that no committed transaction has set and that it did not
  start with. Offsets may go back for a moment, because a coordinator that does not know of its successor may answer, as
  in Kafka.
- hanging-transaction: the last stable offset of a partition did not reach its high watermark within the limit, which is
  the transaction timeout and a margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from tidelog_chaos.checker.loss import last_looks
from tidelog_chaos.checker.transaction_notes import NOTHING, Initialized, Members, Place, TransactionNotes
from tidelog_chaos.checker.transactions import FAIL, OK, TYPES, UNKNOWN, Transactions, Visibility
from tidelog_chaos.checker.versions import VersionOrders
from tidelog_chaos.history import Op
from tidelog_chaos.verdict import Case, Findings


def find_transaction_faults(
    transactions: Transactions,
    visibility: Visibility,
    versions: VersionOrders,
    notes: TransactionNotes,
    findings: Findings,
) -> None:
    """Add the anomalies that the module describes."""
    if notes:
        _TransactionChecks(transactions, visibility, versions, notes, findings).run()


def transaction_statistics(transactions: Transactions, notes: TransactionNotes) -> dict[str, Any]:
    """Return the number of transactions by outcome and of other parts; empty without any."""
    if not notes:
        return {}
    outcomes = dict.fromkeys(TYPES, 0)
    outputs = 0
    for index, kind in zip(transactions.indexes, transactions.types, strict=True):
        members = notes.members.get(index)
        if members is not None:
            outcomes[TYPES[kind]] += 1
            outputs += len(members.sources) if kind == OK else 0
    return {
        "outcomes": outcomes,
        "transactional_ids": len(notes.initialized),
        "producers": sum(map(len, notes.initialized.values())),
        "outputs": outputs,
        "fetched": len(notes.fetched),
        "settled": notes.settled is not None and not notes.behind,
        "ended": notes.ended is not None,
    }


class _TransactionChecks:
    def __init__(
        self,
        transactions: Transactions,
        visibility: Visibility,
        versions: VersionOrders,
        notes: TransactionNotes,
        findings: Findings,
    ) -> None:
        self._transactions = transactions
        self._visibility = visibility
        self._versions = versions
        self._notes = notes
        self._findings = findings
        self._members: dict[int, Members] = {}
        for number, index in enumerate(transactions.indexes):
            if index in notes.members:
                self._members[number] = notes.members[index]

    def run(self) -> None:
        self._find_early_reads()
        self._find_torn()
        self._find_zombies()
        outputs = self._find_repeated_outputs()
        self._compare_with_final_offsets(outputs)
        self._find_unstable_offsets()
        for key, (stable, high) in sorted(self._notes.behind.items()):
            self._findings.add("hanging-transaction", partial(self._hanging_case, key, stable, high))
        if self._notes.settled is None:
            text = "The end of all transactions was not awaited: torn and hanging ones may be missed."
            self._findings.notes.append(text)

    def _is_committed(self, transaction: int) -> bool:
        return self._transactions.types[transaction] != FAIL and bool(self._visibility.committed[transaction])

    def _values(self, transaction: int) -> list[int]:
        transactions = self._transactions
        entries = transactions.entries(transaction)
        return [transactions.values[entry] for entry in entries if transactions.micro_operations[entry] < 0]

    def _find_early_reads(self) -> None:
        transactions = self._transactions
        found: set[int] = set()
        for reader, value, _ in transactions.reads():
            members = self._members.get(transactions.writers[value])
            if members is None or members.committing_ns is None or value in found:
                continue
            if transactions.times_ns[reader] < members.committing_ns and reader != transactions.writers[value]:
                found.add(value)
                text = "before the commit of its transaction was requested"
                self._findings.add("early-read", partial(self._value_case, value, text, reader))

    def _find_torn(self) -> None:
        if self._notes.settled is None:
            return
        looks, first_reader = last_looks(self._transactions), self._visibility.first_reader
        for number in self._members:
            values = self._values(number)
            seen = [value for value in values if first_reader[value] != UNKNOWN]
            if not seen:
                continue
            for value in values:
                looked = looks[self._transactions.key_of_value[value]] > self._notes.settled_position
                if first_reader[value] == UNKNOWN and looked:
                    other = ":".join(map(str, self._transactions.name(seen[0])))
                    text = f"although value {other} of the same transaction was"
                    reader = first_reader[seen[0]]
                    self._findings.add("torn-transaction", partial(self._torn_case, value, text, (seen[0], reader)))

    def _find_zombies(self) -> None:
        first = {
            (name, note.producer): note for name, notes in self._notes.initialized.items() for note in reversed(notes)
        }
        for number, members in self._members.items():
            own = first.get((members.transactional_id, members.producer))
            if own is None or members.committing_ns is None or not self._is_committed(number):
                continue
            for later in self._notes.initialized[members.transactional_id]:
                is_newer = later.producer != members.producer and own.op.time_ns < later.since_ns
                if is_newer and later.op.time_ns < members.committing_ns:
                    self._findings.add("zombie-commit", partial(self._zombie_case, number, members, later))
                    break

    def _find_repeated_outputs(self) -> dict[Place, int]:
        """Return the committed transaction with the output of each consumed record."""
        outputs: dict[Place, int] = {}
        for number, members in self._members.items():
            if not self._is_committed(number):
                continue
            for place in members.sources:
                other = outputs.setdefault(place, number)
                if other != number or members.sources.count(place) > 1:
                    self._findings.add("output-twice", partial(self._twice_case, place, other, number))
        return outputs

    def _compare_with_final_offsets(self, outputs: Mapping[Place, int]) -> None:
        if self._notes.ended is None:
            return
        note, offsets = self._notes.ended
        for (key, offset), number in outputs.items():
            if offset >= offsets.get(key, NOTHING):
                case = partial(self._ahead_case, (key, offset), offsets.get(key, NOTHING), number, note)
                self._findings.add("output-ahead", case)
        for key, offset, value in self._polled_below(offsets):
            if (key, offset) not in outputs:
                self._findings.add("output-missing", partial(self._missing_case, key, offset, value, note))

    def _polled_below(self, offsets: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
        for number, key in enumerate(self._transactions.keys):
            if key in offsets:
                log = self._versions.logs[number]
                for offset, value in zip(log.offsets, log.order, strict=True):
                    if offset < offsets[key] and self._visibility.first_reader[value] != UNKNOWN:
                        yield key, offset, value

    def _find_unstable_offsets(self) -> None:
        committed = {
            place
            for number, members in self._members.items()
            if self._is_committed(number)
            for place in members.consumed.items()
        }
        committed.update(self._notes.started.items())
        told = [*self._notes.fetched, *([self._notes.ended] if self._notes.ended else [])]
        found: set[Place] = set()
        for note, offsets in told:
            for place in offsets.items():
                is_known = place in committed or (place[1] == NOTHING and place[0] not in self._notes.started)
                if not is_known and place not in found:
                    found.add(place)
                    self._findings.add("unstable-offset", partial(self._unstable_case, place, note))

    # Cases

    def _value_case(self, value: int, what: str, reader: int) -> Case:
        key, name = self._transactions.name(value)
        numbers = [self._transactions.writers[value], reader]
        return {
            "text": f"{key}: operation {self._transactions.indexes[reader]} polled value {name} {what}",
            "key": key,
            "value": name,
            "ops": [self._transactions.as_operation(number, [value]) for number in numbers],
        }

    def _torn_case(self, value: int, what: str, seen: tuple[int, int]) -> Case:
        key, name = self._transactions.name(value)
        writer = self._transactions.as_operation(self._transactions.writers[value])
        return {
            "text": f"{key}: value {name} was never polled, {what}",
            "key": key,
            "value": name,
            "ops": [writer, self._transactions.as_operation(seen[1], [seen[0]])],
        }

    def _zombie_case(self, number: int, members: Members, later: Initialized) -> Case:
        name, index = members.transactional_id, self._transactions.indexes[number]
        return {
            "text": f"{name}: producer {members.producer} committed operation {index}, "
            f"although producer {later.producer} had initialized before",
            "transactional_id": name,
            "ops": [later.op.as_json(), self._transactions.as_operation(number)],
        }

    def _twice_case(self, place: Place, *numbers: int) -> Case:
        indexes = [self._transactions.indexes[number] for number in numbers]
        return {
            "text": f"{place[0]}: operations {indexes[0]} and {indexes[1]} both have the output of offset {place[1]}",
            "key": place[0],
            "offset": place[1],
            "ops": [self._transactions.as_operation(number) for number in dict.fromkeys(numbers)],
        }

    def _ahead_case(self, place: Place, final: int, number: int, note: Op) -> Case:
        until = "has no offset" if final == NOTHING else f"ends at {final}"
        return {
            "text": f"{place[0]}: offset {place[1]} has an output, and the group {until}",
            "key": place[0],
            "offset": place[1],
            "ops": [self._transactions.as_operation(number), note.as_json()],
        }

    def _missing_case(self, key: str, offset: int, value: int, note: Op) -> Case:
        name = self._transactions.name(value)[1]
        return {
            "text": f"{key}: value {name} at offset {offset} has no output, and the group has passed it",
            "key": key,
            "offset": offset,
            "value": name,
            "ops": [self._transactions.as_operation(self._visibility.first_reader[value], [value]), note.as_json()],
        }

    def _unstable_case(self, place: Place, note: Op) -> Case:
        setters = [n for n, members in self._members.items() if members.consumed.get(place[0]) == place[1]]
        was = "had no offset" if place[1] == NOTHING else f"was at {place[1]}"
        return {
            "text": f"{place[0]}: the group {was}, which no committed transaction has set",
            "key": place[0],
            "offset": place[1],
            "ops": [*(self._transactions.as_operation(number) for number in setters), note.as_json()],
        }

    def _hanging_case(self, key: str, stable: int, high: int) -> Case:
        note = self._notes.settled
        assert note is not None
        return {
            "text": f"{key}: the last stable offset stayed at {stable}, below the high watermark {high}",
            "key": key,
            "offsets": [stable, high],
            "ops": [note.as_json()],
        }
