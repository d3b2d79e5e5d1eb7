"""Random histories of transactional producers: requests and answers are lost, late and repeated, and transactions time
out.

Each transaction is whole or not there, in all partitions and in the group's offsets, and only once. A commit that
succeeded is there, an abort that succeeded is not, whatever calls timed out before. Nothing hangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from transaction_world import PARTITIONS, World

from tidelog.producer.core.transaction_operations import Operation
from tidelog.producer.core.transaction_requests import GroupMember, OffsetToCommit
from tidelog_foundation.errors import ErrorCode, TidelogError

OFFSETS = ".99"
"""The end of the value that stands for a transaction's offsets."""


class History:
    """A run of one client, which is replaced when it is fenced or crashes."""

    def __init__(self, version: int, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(version, self.random, faults=self.random.choice((0.0, 0.1, 0.3)))
        self.values: dict[int, list[str]] = {}
        self.outcomes: dict[int, bool] = {}
        """Whether a transaction was committed, as far as the client was told."""

    def run(self, transactions: int) -> None:
        self.world.started()
        for number in range(transactions):
            self._transact(number)
            if self.world.is_fatal:
                self._crash()
        self.world.heal()
        self.world.restart()
        self.world.started()
        self.world.server.settle()

    def check(self) -> None:
        assert not [data for replica in self.world.server.partitions.values() for data in replica.hanging()]
        seen = Counter(self.world.visible())
        # Offsets may be committed twice, because that has no further effect.
        assert not [value for value, times in seen.items() if times > 1 and not value.endswith(OFFSETS)]
        for number, values in self.values.items():
            present = {value in seen for value in values}
            assert len(present) <= 1, f"transaction {number} is torn: {[v for v in values if v not in seen]}"
            if number in self.outcomes and values:
                assert present == {self.outcomes[number]}, (number, self.outcomes[number])
        for replica in self.world.server.partitions.values():
            numbers = [tuple(map(int, value.split(".")[:2])) for value in replica.visible()]
            assert numbers == sorted(numbers)

    def _transact(self, number: int) -> None:
        world, random = self.world, self.random
        world.manager.begin()
        values = self.values[number] = []
        try:
            for i in range(random.randrange(8)):
                value = f"{number}.{i}"
                world.produce(random.randrange(PARTITIONS), value)
                values.append(value)
                for _ in range(random.randrange(3)):
                    world.step()
            if random.random() < 0.4:
                offsets = OffsetToCommit("in", 0, number, metadata=f"{number}{OFFSETS}")
                values.append(offsets.metadata)
                error = world.run(world.manager.send_offsets(GroupMember("g"), [offsets]))
                if error is not None:
                    raise error
            if random.random() < 0.1:
                self._crash()
                return
            if random.random() < 0.1:
                world.server.time_out()
            self._end(number, committed=random.random() < 0.7)
        except TidelogError as error:
            if error.error.txn_requires_abort():
                self._end(number, committed=False)

    def _crash(self) -> None:
        self.world.restart()
        self.world.started()

    def _end(self, number: int, *, committed: bool) -> None:
        manager = self.world.manager
        end, opposite = (manager.commit, manager.abort) if committed else (manager.abort, manager.commit)
        try:
            error = self._wait(end, opposite)
        except TidelogError as raised:
            error = raised
        if error is None:
            self.outcomes[number] = committed
        elif committed and error.error.txn_requires_abort():
            self._end(number, committed=False)
        else:
            assert error.error.fatal(), error

    def _wait(self, end: Callable[[], Operation], opposite: Callable[[], Operation]) -> TidelogError | None:
        """Call until the outcome is known, as an application whose calls time out, and return the error.

        A call that timed out claims nothing: the opposite end is refused until the outcome is known.
        """
        while True:
            operation = end()
            for _ in range(self.random.choice((5, 50, 3_000))):
                if operation.is_done:
                    self.world.manager.acknowledge(operation)
                    return operation.error
                self.world.step()
            if not operation.is_done:
                with pytest.raises(TidelogError) as raised:
                    opposite()
                assert raised.value.code is ErrorCode._CONFLICT


@pytest.mark.parametrize("version", [1, 2])
@settings(max_examples=examples(120), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_transactions_are_whole_and_applied_once_over_a_faulty_network(version: int, seed: int) -> None:
    history = History(version, seed)
    history.run(12)
    history.check()
