"""A correct log with transactions, and clients that use it in random order: its histories have no anomalies.

Sent records are in the log at once and visible when their transaction commits. No consumer reads past the first open
one. A client that does not learn its outcome continues as a new process. A rebalance may set a subscriber back or
forward, as the group's committed offsets do.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Literal

from tidelog_chaos.history import Op, OpType

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
KEYS = ("k0", "k1", "k2")


@dataclass(slots=True)
class Transaction:
    """Micro-operations, the first ``done`` of which are complete."""

    process: int
    index: int
    f: str
    plan: list[list[Any]]
    state: str = OPEN
    done: list[list[Any]] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    rebalanced: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Client:
    """A process with the keys that it reads and its positions."""

    process: int
    positions: dict[str, int] = field(default_factory=dict)
    subscribed: bool = False
    transaction: Transaction | None = None


class LogClients:
    """A generator of a history. :attr:`ops` is complete after :meth:`run`."""

    def __init__(self, seed: int, clients: int = 4) -> None:
        self._dice = random.Random(seed)
        self._clients = [Client(process) for process in range(clients)]
        self._next_process = clients
        self._next_value = 0
        self.logs: dict[str, list[tuple[int | None, Transaction | None]]] = {key: [] for key in KEYS}
        self.ops: list[Op] = []

    def run(self, steps: int) -> list[Op]:
        for _ in range(steps):
            self._step(self._dice.choice(self._clients))
        for client in self._clients:
            while client.transaction is not None:
                self._step(client)
        self._read_all()
        return self.ops

    def visible(self, key: str) -> list[tuple[int, int]]:
        """Return the (offset, value) of all visible records."""
        found = []
        for offset, (value, transaction) in enumerate(self.logs[key]):
            if value is not None and transaction is not None and transaction.state == COMMITTED:
                found.append((offset, value))
        return found

    def append(self, process: int, type_: OpType, f: str, value: Any, **extra: Any) -> Op:
        op = Op(len(self.ops), process, type_, f, value, 1_000 * len(self.ops), extra=extra)
        self.ops.append(op)
        return op

    def fresh_value(self) -> int:
        self._next_value += 1
        return self._next_value

    def fresh_process(self) -> int:
        self._next_process += 1
        return self._next_process - 1

    def _step(self, client: Client) -> None:
        transaction = client.transaction
        if transaction is None:
            self._begin(client)
        elif len(transaction.done) < len(transaction.plan) and self._dice.random() < 0.95:
            self._do_next(client, transaction)
        else:
            self._end(client, transaction)

    def _begin(self, client: Client) -> None:
        kind = self._dice.random()
        if kind < 0.1 or (not client.positions and kind < 0.4):
            self._assign(client)
        elif kind < 0.13:
            self.append(client.process, "invoke", "crash", None)
            self.append(client.process, "info", "crash", None)
            self._replace(client)
        else:
            plan = [self._micro_operation() for _ in range(self._dice.choice((1, 1, 1, 2, 4)))]
            kinds = {micro_operation[0] for micro_operation in plan}
            f = "txn" if len(kinds) == 2 else kinds.pop()
            op = self.append(client.process, "invoke", f, [list(micro_operation) for micro_operation in plan])
            client.transaction = Transaction(client.process, op.index, f, plan, positions=dict(client.positions))

    def _micro_operation(self) -> list[Any]:
        if self._dice.random() < 0.5:
            return ["poll"]
        return ["send", self._dice.choice(KEYS), self.fresh_value()]

    def _assign(self, client: Client) -> None:
        f: Literal["assign", "subscribe"] = self._dice.choice(("assign", "assign", "subscribe"))
        keys = self._dice.sample(KEYS, self._dice.randint(1, len(KEYS)))
        self.append(client.process, "invoke", f, keys)
        if self._dice.random() < 0.1:
            self.append(client.process, "fail", f, keys)
            return
        self.append(client.process, "ok", f, keys)
        client.positions = {key: client.positions.get(key, 0) for key in keys}
        client.subscribed = f == "subscribe"

    def _do_next(self, client: Client, transaction: Transaction) -> None:
        micro_operation = transaction.plan[len(transaction.done)]
        if micro_operation[0] == "send":
            _, key, value = micro_operation
            self.logs[key].append((value, transaction))
            offset = None if self._dice.random() < 0.1 else len(self.logs[key]) - 1
            transaction.done.append(["send", key, [offset, value]])
        else:
            if client.subscribed and self._dice.random() < 0.1:
                self._rebalance(transaction)
            transaction.done.append(["poll", self._poll(transaction)])

    def _rebalance(self, transaction: Transaction) -> None:
        for key in transaction.positions:
            transaction.positions[key] = self._dice.randint(0, len(self.logs[key]))
            transaction.rebalanced.add(key)

    def _poll(self, transaction: Transaction) -> dict[str, list[list[int]]]:
        polled: dict[str, list[list[int]]] = {}
        for key, position in transaction.positions.items():
            for offset in range(position, min(self._stable(key), position + self._dice.randint(1, 5))):
                value, writer = self.logs[key][offset]
                transaction.positions[key] = offset + 1
                if value is not None and writer is not None and writer.state == COMMITTED:
                    polled.setdefault(key, []).append([offset, value])
        return polled

    def _stable(self, key: str) -> int:
        log = self.logs[key]
        return next(
            (at for at, (_, transaction) in enumerate(log) if transaction and transaction.state == OPEN), len(log)
        )

    def _end(self, client: Client, transaction: Transaction) -> None:
        complete = len(transaction.done) == len(transaction.plan)
        aborts = not complete or self._dice.random() < 0.1
        transaction.state = ABORTED if aborts else COMMITTED
        for key in {micro_operation[1] for micro_operation in transaction.done if micro_operation[0] == "send"}:
            if self._dice.random() < 0.5:
                self.logs[key].append((None, None))
        rest = [list(micro_operation) for micro_operation in transaction.plan[len(transaction.done) :]]
        extra = {"rebalance_log": [{"keys": sorted(transaction.rebalanced)}]} if transaction.rebalanced else {}
        value = transaction.done + rest
        client.transaction = None
        if self._dice.random() < 0.15:
            if self._dice.random() < 0.8:
                self.append(client.process, "info", transaction.f, value, **extra)
            self._replace(client)
        elif aborts:
            self.append(client.process, "fail", transaction.f, value, **extra)
        else:
            self.append(client.process, "ok", transaction.f, value, **extra)
            client.positions = transaction.positions

    def _replace(self, client: Client) -> None:
        client.process = self.fresh_process()
        client.positions = {}
        client.subscribed = False

    def _read_all(self) -> None:
        process = self.fresh_process()
        self.append(process, "invoke", "assign", list(KEYS), seek_to_beginning=True)
        self.append(process, "ok", "assign", list(KEYS))
        reader = Transaction(process, 0, "poll", [], positions=dict.fromkeys(KEYS, 0))
        while any(reader.positions[key] < self._stable(key) for key in KEYS):
            self.append(process, "invoke", "poll", [["poll"]])
            self.append(process, "ok", "poll", [["poll", self._poll(reader)]])
