"""A history in columns: the sends, polls and assignments of each client operation, as numbers.

The checks scan millions of operations several times, so operations are in arrays, and every pair of a key and a value
has a number. A transaction here is the completion of a send, poll or txn, whatever its outcome; assign, subscribe and
crash come between them, because they change the next read of a process. Lines become transactions as follows:

- Notes and unknown functions are skipped; the latter are counted.
- An invocation that never completed is an ``info`` at the end of the history: its effect is unknown. A ``crash`` ends a
  pending operation of its process in the same way.
- A completion without micro-operations (``value`` null or empty) has the micro-operations of its invocation.
- Keys that are numbers are read as strings, as in JSON's objects.
- A value should be sent once per key. If it is sent again, the last send counts as its writer, as in Jepsen, and the
  others are recorded: G1a and precommitted-read check all of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Final

from tidelog_chaos.history import (
    ASSIGNMENT_FUNCTIONS,
    MOST,
    NOTES,
    TRANSACTION_FUNCTIONS,
    InvalidHistoryError,
    Op,
    Process,
    shown,
)

OK: Final = 0
INFO: Final = 1
FAIL: Final = 2
TYPES: Final = ("ok", "info", "fail")

SEND: Final = 0
POLL: Final = 1
TXN: Final = 2
ASSIGN: Final = 3
SUBSCRIBE: Final = 4
CRASH: Final = 5
FUNCTIONS: Final = ("send", "poll", "txn", "assign", "subscribe", "crash")
_WITHOUT_EFFECT: Final = "debug-topic-partitions"

UNKNOWN: Final = -1
"""An unreported offset; a value without a writer; an invocation that is not in the history."""

NEVER: Final = 2**62
"""The position of a completion that is not in the history."""

_TYPE_CODES = {name: code for code, name in enumerate(TYPES)}
_FUNCTION_CODES = {name: code for code, name in enumerate(FUNCTIONS)}
_SEEK_NAMES = ("seek_to_beginning", "seek-to-beginning", "seek-to-beginning?")
_REBALANCE_NAMES = ("rebalance_log", "rebalance-log")


class Transactions:
    """All completions of clients, in the order of the history; element ``i`` of each column is the transaction ``i``.

    Transaction ``i`` sent and polled the entries from ``starts[i]`` to ``starts[i + 1]`` of the columns ``values``,
    ``offsets`` and ``micro_operations``, in that order.
    """

    def __init__(self) -> None:
        self.indexes = array("q")
        self.types = bytearray()
        self.functions = bytearray()
        self.processes = array("q")
        """Numbers of processes; :attr:`process_names` has their names."""
        self.times_ns = array("q")
        self.invoke_times_ns = array("q")
        self.positions = array("q")
        """The event of the completion in the history; those that never completed come after all."""
        self.invoke_positions = array("q")
        """The event of the invocation, UNKNOWN if it is not there."""
        self.polls = bytearray()
        """True for a transaction that polled, even without a result."""
        self.starts = array("q", [0])
        self.values = array("q")
        """Numbers of pairs of key and value."""
        self.offsets = array("q")
        self.micro_operations = array("i")
        """The micro-operation of the transaction: ``n`` is a poll, ``~n`` (below zero) is a send."""
        self.assigned: dict[int, frozenset[int]] = {}
        """The keys that an assign or subscribe names."""
        self.seeks: set[int] = set()
        """The assigns that seek to the beginning."""
        self.rebalanced: dict[int, frozenset[int]] = {}
        """The keys in the rebalance log of a transaction that has one."""
        self.errors: dict[int, str] = {}
        self.process_names: list[Process] = []
        self.keys: list[str] = []
        self.key_of_value = array("i")
        self.value_names: list[Hashable] = []
        self.writers = array("q")
        """The transaction that sent each value (last), whatever its outcome, or UNKNOWN."""
        self.resent: dict[int, list[int]] = {}
        """All transactions that sent a value, for values that were sent more than once."""
        self.unknown_functions: dict[str, int] = {}
        """The number of invocations and completions of each unknown ``f``."""

    def __len__(self) -> int:
        return len(self.types)

    def entries(self, transaction: int) -> range:
        """Return the numbers of the entries of a transaction."""
        return range(self.starts[transaction], self.starts[transaction + 1])

    def name(self, value: int) -> tuple[str, Hashable]:
        """Return the key and the value of a number."""
        return self.keys[self.key_of_value[value]], self.value_names[value]

    def senders(self, value: int) -> Sequence[int]:
        """Return all transactions that sent a value: one, except for values that were sent again."""
        if value in self.resent:
            return self.resent[value]
        return () if self.writers[value] == UNKNOWN else (self.writers[value],)

    def sends(self) -> Iterator[tuple[int, int, int]]:
        """Yield (transaction, value, offset) of every send."""
        return self._entries_where(True)

    def reads(self) -> Iterator[tuple[int, int, int]]:
        """Yield (transaction, value, offset) of every polled record."""
        return self._entries_where(False)

    def as_operation(self, transaction: int, near: Iterable[int] = (), margin: int = 3) -> dict[str, Any]:
        """Return a transaction as its line of the history.

        With ``near``, the line has only the entries within ``margin`` of these values, by key, and ``left_out`` counts
        the others. This keeps the line readable, since the operation may have polled a thousand records.
        """
        entries = list(self.entries(transaction))
        kept = self._near(entries, frozenset(near), margin)
        members: dict[str, Any] = {
            "index": self.indexes[transaction],
            "process": self.process_names[self.processes[transaction]],
            "type": TYPES[self.types[transaction]],
            "f": FUNCTIONS[self.functions[transaction]],
            "value": self._micro_operations(kept),
            "time": self.times_ns[transaction],
        }
        if transaction in self.errors:
            members["error"] = self.errors[transaction]
        if len(kept) < len(entries):
            members["left_out"] = len(entries) - len(kept)
        return members

    def _entries_where(self, sends: bool) -> Iterator[tuple[int, int, int]]:
        kinds, values, offsets, starts = self.micro_operations, self.values, self.offsets, self.starts
        for transaction in range(len(self.types)):
            for entry in range(starts[transaction], starts[transaction + 1]):
                if (kinds[entry] < 0) is sends:
                    yield transaction, values[entry], offsets[entry]

    def _near(self, entries: Sequence[int], values: frozenset[int], margin: int) -> list[int]:
        if not values:
            return list(entries)
        keys = {self.key_of_value[value] for value in values}
        same = [entry for entry in entries if self.key_of_value[self.values[entry]] in keys]
        hits = [place for place, entry in enumerate(same) if self.values[entry] in values]
        wanted = {place for hit in hits for place in range(hit - margin, hit + margin + 1)}
        return [entry for place, entry in enumerate(same) if place in wanted]

    def _micro_operations(self, entries: Iterable[int]) -> list[Any]:
        answer: list[Any] = []
        last = None
        for entry in entries:
            kind = self.micro_operations[entry]
            offset = self.offsets[entry]
            key, value = self.name(self.values[entry])
            pair = [None if offset == UNKNOWN else offset, value]
            if kind < 0:
                answer.append(["send", key, pair])
            elif kind == last:
                answer[-1][1].setdefault(key, []).append(pair)
            else:
                answer.append(["poll", {key: [pair]}])
            last = kind
        return answer


def read_transactions(ops: Iterable[Op]) -> Transactions:
    """Return a history in columns, without the operations themselves.

    Raises:
        InvalidHistoryError: A value does not have the form of its function; the message names its index.
    """
    reader = _Reader()
    for op in ops:
        try:
            reader.take(op)
        except ValueError as error:
            raise InvalidHistoryError(f"index {op.index}: {error}", index=op.index) from None
    reader.finish()
    return reader.transactions


class _Reader:
    """Pairs invocations with completions and adds them to the columns."""

    def __init__(self) -> None:
        self.transactions = Transactions()
        self._position = 0
        self._pending: dict[Process, tuple[int, Op]] = {}
        self._process_numbers: dict[Process, int] = {}
        self._key_numbers: dict[str, int] = {}
        self._value_numbers: list[dict[Hashable, int]] = []

    def take(self, op: Op) -> None:
        """Process the next line.

        Raises:
            ValueError: It cannot be parsed.
        """
        position, self._position = self._position, self._position + 1
        if op.process in NOTES:
            return
        if op.f not in _FUNCTION_CODES:
            self._pass_over(op.f)
            return
        pending = self._pending.get(op.process)
        if pending is not None and (op.type == "invoke" or pending[1].f != op.f):
            self._abandon(op.process)
        if op.type == "invoke":
            self._pending[op.process] = (position, op)
        else:
            self._complete(op, position, self._pending.pop(op.process, None))

    def finish(self) -> None:
        """Add the operations that never completed."""
        for process in list(self._pending):
            self._abandon(process)

    def _pass_over(self, function: str) -> None:
        if function != _WITHOUT_EFFECT:
            counts = self.transactions.unknown_functions
            counts[function] = counts.get(function, 0) + 1

    def _abandon(self, process: Process) -> None:
        position, op = self._pending.pop(process)
        try:
            self._complete(Op(op.index, process, "info", op.f, op.value, op.time_ns), None, (position, op))
        except ValueError as error:
            raise InvalidHistoryError(f"index {op.index}: {error}", index=op.index) from None

    def _complete(self, op: Op, position: int | None, invocation: tuple[int, Op] | None) -> None:
        columns = self.transactions
        number = len(columns)
        columns.indexes.append(op.index)
        columns.types.append(_TYPE_CODES[op.type])
        columns.functions.append(_FUNCTION_CODES[op.f])
        columns.processes.append(self._process(op.process))
        columns.times_ns.append(op.time_ns)
        columns.positions.append(NEVER if position is None else position)
        columns.invoke_times_ns.append(op.time_ns if invocation is None else invocation[1].time_ns)
        columns.invoke_positions.append(UNKNOWN if invocation is None else invocation[0])
        columns.polls.append(0)
        if op.error is not None:
            columns.errors[number] = op.error
        value = op.value or (None if invocation is None else invocation[1].value)
        if op.f in TRANSACTION_FUNCTIONS:
            self._take_micro_operations(number, value)
            self._take_rebalance_log(number, op)
        elif op.f in ASSIGNMENT_FUNCTIONS:
            self._take_assignment(number, op, value, invocation)
        columns.starts.append(len(columns.values))

    def _take_micro_operations(self, transaction: int, value: Any) -> None:
        if not isinstance(value, list):
            raise ValueError(f"a transaction's value is a list of micro-operations, not {shown(value)}")
        for place, micro_operation in enumerate(value):
            match micro_operation:
                case ["send", key, sent]:
                    self._take_send(transaction, place, self._key(key), sent)
                case ["poll"] | ["poll", None]:
                    self.transactions.polls[transaction] = 1
                case ["poll", dict(polled)]:
                    self._take_poll(transaction, place, polled)
                case _:
                    raise ValueError(f"{shown(micro_operation)} is neither a send nor a poll")

    def _take_send(self, transaction: int, place: int, key: int, sent: Any) -> None:
        offset, value = self._pair(sent) if isinstance(sent, list) else (UNKNOWN, self._value_name(sent))
        number = self._value(key, value)
        before = self.transactions.writers[number]
        if before != UNKNOWN:
            self.transactions.resent.setdefault(number, [before]).append(transaction)
        self.transactions.writers[number] = transaction
        self._entry(~place, number, offset)

    def _take_poll(self, transaction: int, place: int, polled: dict[Any, Any]) -> None:
        self.transactions.polls[transaction] = 1
        for key, records in polled.items():
            number = self._key(key)
            if not isinstance(records, list):
                raise ValueError(f"what is polled from {key} is a list of [offset, value], not {shown(records)}")
            for record in records:
                offset, value = self._pair(record)
                self._entry(place, self._value(number, value), offset)

    def _entry(self, kind: int, value: int, offset: int) -> None:
        self.transactions.micro_operations.append(kind)
        self.transactions.values.append(value)
        self.transactions.offsets.append(offset)

    def _take_assignment(self, number: int, op: Op, value: Any, invocation: tuple[int, Op] | None) -> None:
        if not isinstance(value, list | None):
            raise ValueError(f"the value of {op.f} is a list of keys, not {shown(value)}")
        self.transactions.assigned[number] = frozenset(self._key(key) for key in value or ())
        members = dict(op.extra) if invocation is None else {**invocation[1].extra, **op.extra}
        if any(members.get(name) for name in _SEEK_NAMES):
            self.transactions.seeks.add(number)

    def _take_rebalance_log(self, number: int, op: Op) -> None:
        log = next((op.extra[name] for name in _REBALANCE_NAMES if op.extra.get(name)), None)
        if log is None:
            return
        try:
            names = [key for event in log for key in (event["keys"] if isinstance(event, dict) else [event])]
        except (TypeError, KeyError):
            raise ValueError(f'a rebalance log is a list of {{"keys": [...]}}, or of keys, not {shown(log)}') from None
        self.transactions.rebalanced[number] = frozenset(map(self._key, names))

    def _process(self, process: Process) -> int:
        number = self._process_numbers.setdefault(process, len(self._process_numbers))
        if number == len(self.transactions.process_names):
            self.transactions.process_names.append(process)
        return number

    def _key(self, key: Any) -> int:
        name = key if isinstance(key, str) else str(key)
        number = self._key_numbers.get(name)
        if number is None:
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise ValueError(f"{shown(key)} is not a key")
            number = self._key_numbers[name] = len(self._key_numbers)
            self.transactions.keys.append(name)
            self._value_numbers.append({})
        return number

    def _value(self, key: int, name: Hashable) -> int:
        numbers = self._value_numbers[key]
        number = numbers.get(name)
        if number is None:
            number = numbers[name] = len(self.transactions.value_names)
            self.transactions.value_names.append(name)
            self.transactions.key_of_value.append(key)
            self.transactions.writers.append(UNKNOWN)
        return number

    def _pair(self, pair: Any) -> tuple[int, Hashable]:
        match pair:
            case [None, value]:
                return UNKNOWN, self._value_name(value)
            case [int(offset), value] if 0 <= offset <= MOST and not isinstance(offset, bool):
                return offset, self._value_name(value)
        raise ValueError(f"{shown(pair)} is not a pair of an offset from 0 to {MOST}, or null, and a value")

    @staticmethod
    def _value_name(value: Any) -> Hashable:
        if value is None or isinstance(value, list | dict):
            raise ValueError(f"{shown(value)} is not a value: they are whole numbers, each once per key")
        hashable: Hashable = value
        return hashable


class Visibility:
    """The values that were read, and the transactions that are therefore known to have taken effect.

    ``committed`` is true of an ``ok``, and of an ``info`` with a send that an ``ok`` poll saw: its transaction must
    have committed, so all its sends count. A ``fail`` is never committed; a read of its value is G1a.
    """

    def __init__(self, transactions: Transactions) -> None:
        self.first_reader = array("q", [UNKNOWN]) * len(transactions.value_names)
        """The first ``ok`` transaction that polled each value, or UNKNOWN."""
        self.committed = bytearray(kind == OK for kind in transactions.types)
        """True for each transaction that is known to have taken effect."""
        for transaction, value, _ in transactions.reads():
            if transactions.types[transaction] == OK and self.first_reader[value] == UNKNOWN:
                self.first_reader[value] = transaction
        for transaction, value, _ in transactions.sends():
            if transactions.types[transaction] == INFO and self.first_reader[value] != UNKNOWN:
                self.committed[transaction] = 1

    def is_committed_value(self, transactions: Transactions, value: int) -> bool:
        """Return whether the value has a writer that is known to have taken effect."""
        writer = transactions.writers[value]
        return writer != UNKNOWN and bool(self.committed[writer])
