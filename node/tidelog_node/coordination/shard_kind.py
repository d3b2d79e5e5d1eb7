"""The parts in which the shards of one coordinator differ from those of another, as the shell uses them.

A :class:`ShardKind` creates the cores of its shards, decides how their calls are treated, and executes the commands
that only they have. Everything else is the same for all kinds (:mod:`.shard_driver`, :mod:`.coordinator`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from tidelog_foundation.errors import TidelogError
from tidelog_node.partitions import Partition
from tidelog_node.shards.events import ShardCommand, ShardEvent
from tidelog_node.shards.store import RecordStore

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
NewsT = TypeVar("NewsT")
CommandT = TypeVar("CommandT")
NewsT_contra = TypeVar("NewsT_contra", contravariant=True)
NewsT_co = TypeVar("NewsT_co", covariant=True)
CommandT_co = TypeVar("CommandT_co", covariant=True)


class ShardCore(Protocol[RequestT, ResponseT, NewsT_contra, CommandT_co]):
    """The core of one shard. ``NewsT_contra`` and ``CommandT_co`` are the events and commands of its kind only."""

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next TimePassed on the monotonic clock, or None."""
        ...

    def step(
        self, event: ShardEvent[RequestT] | NewsT_contra, now_ms: int, wall_ms: int
    ) -> Sequence[ShardCommand[ResponseT] | CommandT_co]:
        """Process an event and return the commands in order. ``wall_ms`` is the wall-clock time."""
        ...


class ShardTerm(Protocol[NewsT_contra]):
    """The run of one shard's core in one leader epoch."""

    @property
    def index(self) -> int:
        """The partition."""
        ...

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this node leads the partition."""
        ...

    def post(self, event: NewsT_contra) -> None:
        """Deliver an event to the core. Drop the event if the core has ended."""
        ...


class NewsFeed(Protocol[NewsT_co]):
    """The changes since one shard was last notified."""

    def take(self) -> Sequence[NewsT_co]:
        """Return the events for all changes since the last call. The first call returns events for everything."""
        ...


class ShardKind(ABC, Generic[RequestT, ResponseT, NewsT, CommandT]):
    """The parts of a node's coordinator that depend on the kind of its shards."""

    topic: str
    """The internal topic."""
    noun: str
    """The name of what the shards hold, in messages: ``groups``."""

    @abstractmethod
    def check_id(self, owner: str) -> None:
        """Refuse an id that no record can have.

        Raises:
            TidelogError: The error of the call.
        """

    @abstractmethod
    def new_core(self, store: RecordStore) -> ShardCore[RequestT, ResponseT, NewsT, CommandT]:
        """Return the core of a shard that begins with these committed records."""

    @abstractmethod
    def news(self) -> NewsFeed[NewsT]:
        """Return the feed of a new core."""

    @abstractmethod
    def execute(self, term: ShardTerm[NewsT], command: CommandT) -> None:
        """Execute a command that only this kind has."""

    def end(self, term: ShardTerm[NewsT]) -> None:
        """Process the end of a core."""

    def transaction_ended(self, owners: frozenset[str]) -> NewsT | None:
        """Return the event that tells a core that a transaction with records of these owners has ended."""
        return None

    def needs_news(self, request: RequestT) -> bool:
        """Return whether the core must know the newest changes before it gets this request."""
        return False

    def waits_for_clients(self, request: RequestT) -> bool:
        """Return whether the answer may depend on other clients, so that the wait has no limit."""
        return False

    def refusal(self, request: RequestT, partition: Partition) -> TidelogError | None:
        """Return the error that replaces the core's answer, or None if the answer may be sent."""
        return None
