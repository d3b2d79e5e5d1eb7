"""The order of produce requests that cannot be appended at once.

A new partition may have no folder yet, a large compressed batch is first checked in a thread, and a request of many
bytes is appended in several steps of the event loop. A request for such a partition waits until it can be appended, and
for all earlier requests, so that one producer's batches are appended in the order in which it sent them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tidelog_node.partitions import Partition, create_folders


class ProduceTurns:
    """One per node, on its event loop."""

    def __init__(self) -> None:
        self._last: dict[Partition, Turn] = {}

    def is_free(self, partition: Partition) -> bool:
        """True if a batch may be appended to the partition now."""
        return partition.log.has_folder and partition not in self._last

    def take(self, partitions: Iterable[Partition]) -> Turn:
        """Return the turn of a request for these partitions, which it owns until it ends the turn."""
        held = list(dict.fromkeys(partitions))
        turn = Turn(self, held, [self._last[p].ended for p in held if p in self._last])
        self._last.update((partition, turn) for partition in held)
        return turn

    def give_up(self, turn: Turn) -> None:
        """Forget a turn that has ended."""
        for partition in turn.partitions:
            if self._last.get(partition) is turn:
                del self._last[partition]


class Turn:
    """One request's position, from :meth:`ProduceTurns.take` until its batches are appended or never will be."""

    def __init__(self, turns: ProduceTurns, partitions: list[Partition], before: list[asyncio.Future[None]]) -> None:
        self.partitions = partitions
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns = turns
        self._before = before

    async def wait(self) -> None:
        """Wait until all earlier turns have ended and the partitions have folders. Appends report disk errors."""
        for ended in self._before:
            await asyncio.shield(ended)
        await create_folders(self.partitions)

    def end(self) -> None:
        """Pass the partitions to the next turn once all earlier turns have ended. Further calls do nothing.

        A turn that ends early does not wait, but later turns still wait for the earlier ones.
        """
        if self.ended.done():
            return
        before = next((ended for ended in self._before if not ended.done()), None)
        if before is not None:
            before.add_done_callback(lambda _: self.end())
            return
        self.ended.set_result(None)
        self._turns.give_up(self)
