"""Admission of produce requests: the order of their appends, and the checks of costly batches before any is appended.

Costly are compressed batches and those that their topic stores in another codec. Small ones are checked on the event
loop, up to a limit per request, all others in the node's :class:`DecodingThread`. The append checks all other batches.

A request must wait if a new partition has no folder yet, if a large batch is checked in the thread, or if several steps
of the event loop append its bytes. Later requests for these partitions wait behind it, so that one producer's batches
are appended in the order in which it sent them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import OversizedRecordsError
from tidelog_node.event_loop import INLINE_BYTES, MAX_INLINE_SIZE
from tidelog_node.log import CheckedBatch, ProduceRules
from tidelog_quorum.metadata.description import INTERNAL_TOPICS

if TYPE_CHECKING:
    from tidelog_node.handlers.context import NodeContext
    from tidelog_node.handlers.produce import ProduceBatches

K = TypeVar("K", bound=Hashable)

INLINE_REQUEST_BYTES: Final = 1024 * 1024
"""The maximum decompressed size of one request's batches on the event loop: a few milliseconds with the slowest codec.
"""

MAX_REQUEST_PLAIN_BYTES: Final = 1024 * 1024 * 1024
"""The maximum decompressed size of one request's batches in total: sixteen of the largest with the default settings."""

INLINE_APPEND_COST: Final = 8 * 1024 * 1024
"""The maximum cost of one request's batches that are appended in one step of the event loop: some milliseconds."""

_APPEND_COST: Final = 16 * 1024
"""The cost of an append in addition to its bytes."""

_LEAST_COST: Final = 4096
_COST_OF_COMPRESSED: Final = 8
"""The minimum cost of a batch, and its cost per byte. Codecs take time for empty parts too."""

Checks = dict[int, CheckedBatch | TidelogError]
"""Batches by their position in the request, from 0: ready to append, or the error that refuses them."""


class Costly(NamedTuple):
    """A batch to check: its position in the request, the rules of its partition's topic, and its bytes."""

    place: int
    rules: ProduceRules
    records: bytes | memoryview


class Survey(NamedTuple):
    """The result of one pass over the batches of a produce request.

    ``can_append`` is whether no partition must be waited for and one step of the event loop may append all batches.
    ``repeated`` are the batches of partitions that the request repeats, which are refused.
    """

    can_append: bool
    costly: list[Costly]
    repeated: Checks


class Turns(Generic[K]):
    """The requests that wait for the same things, in order. One per node, on its event loop."""

    def __init__(self) -> None:
        self._last: dict[K, Turn[K]] = {}

    def is_free(self, key: K) -> bool:
        """True if no request waits."""
        return key not in self._last

    def take(self, keys: Iterable[K]) -> Turn[K]:
        """Return the turn of a request for these keys, which it owns until it ends the turn."""
        held = list(dict.fromkeys(keys))
        turn = Turn(self, held, [self._last[key].ended for key in held if key in self._last])
        self._last.update((key, turn) for key in held)
        return turn

    def give_up(self, turn: Turn[K]) -> None:
        """Forget a turn that has ended."""
        for key in turn.keys:
            if self._last.get(key) is turn:
                del self._last[key]


class Turn(Generic[K]):
    """One request's position in the order, from :meth:`Turns.take` until the request has ended."""

    def __init__(self, turns: Turns[K], keys: list[K], before: list[asyncio.Future[None]]) -> None:
        self.keys = keys
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns = turns
        self._before = before

    async def wait(self) -> None:
        """Wait until all earlier turns have ended."""
        for ended in self._before:
            await asyncio.shield(ended)

    def end(self) -> None:
        """Pass the keys to the next turn once all earlier turns have ended. Further calls do nothing.

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


def survey_request(context: NodeContext, request: ProduceBatches) -> Survey:
    """Return the survey of a request. Only partitions that this node leads have costly batches."""
    held, turns = context.partitions, context.produce_turns
    can_append, costly, place, append_cost = True, [], 0, 0
    named: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        name = topic.name
        for item in topic.partitions:
            index = item.index
            named[name, index] = place
            partition = held.get(name, index)
            if partition is not None:
                can_append = can_append and turns.is_free(partition) and partition.log.has_folder
                rules, records = partition.log.produce_rules, item.records
                append_cost += len(records) + _APPEND_COST
                if rules.must_convert(records) and partition.state.leader is not None and name not in INTERNAL_TOPICS:
                    costly.append(Costly(place, rules, records))
            place += 1
    can_append = can_append and append_cost <= INLINE_APPEND_COST
    return Survey(can_append, costly, {} if len(named) == place else _repeated(request))


def check_inline(context: NodeContext, survey: Survey) -> Checks | None:
    """Check the batches on the event loop, or return None if one needs the thread."""
    checks = dict(survey.repeated)
    remaining = INLINE_REQUEST_BYTES
    for place, rules, records in survey.costly:
        if place in checks:
            continue
        if len(records) > MAX_INLINE_SIZE or remaining <= 0:
            return None
        try:
            checked = rules.check(records, context.clock.wall_ms(), min(INLINE_BYTES, remaining))
        except OversizedRecordsError:
            return None
        except TidelogError as error:
            # The failed check may have used its whole allowance.
            checks[place] = error
            remaining -= INLINE_BYTES
        else:
            checks[place] = checked
            remaining -= max(checked.plain_size, _COST_OF_COMPRESSED * len(records), _LEAST_COST)
    return checks


async def check_in_thread(context: NodeContext, survey: Survey) -> Checks:
    """Check all batches that must be decompressed or compressed, one by one, in the node's thread."""
    checks = dict(survey.repeated)
    remaining = MAX_REQUEST_PLAIN_BYTES
    for place, rules, records in survey.costly:
        if place in checks:
            continue
        if remaining <= 0:
            text = f"the batches of the request decompress to more than {MAX_REQUEST_PLAIN_BYTES} bytes"
            checks[place] = error_for(ErrorCode.MESSAGE_TOO_LARGE, text)
            continue
        try:
            checked = await context.decoding.run_in_thread(partial(rules.check, records, context.clock.wall_ms()))
        except TidelogError as error:
            checks[place] = error
            remaining -= rules.max_plain_bytes
        else:
            checks[place] = checked
            remaining -= checked.plain_size
    return checks


def _repeated(request: ProduceBatches) -> Checks:
    names = [(topic.name, item.index) for topic in request.topics for item in topic.partitions]
    counts = Counter(names)
    return {
        place: error_for(ErrorCode.INVALID_REQUEST, f"the request has {counts[name]} batches for {name[0]}-{name[1]}")
        for place, name in enumerate(names)
        if counts[name] > 1
    }
