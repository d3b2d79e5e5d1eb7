"""What happens to a voter: the inputs of :meth:`tidelog_quorum.raft.core.raft.Raft.step`."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_quorum.raft.core.messages import Message


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; due at the latest at ``next_deadline_ms``."""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """Another voter's message has arrived. It may be late, doubled or out of order."""

    message: Message


@dataclass(frozen=True, slots=True)
class Proposed:
    """A client of the engine wants ``payload`` in the log, if this voter still leads in ``epoch``."""

    payload: bytes
    epoch: int


@dataclass(frozen=True, slots=True)
class Persisted:
    """All writes up to and including ``sequence`` would survive a crash."""

    sequence: int


@dataclass(frozen=True, slots=True)
class ReadRequested:
    """A client wants to know an index that covers everything committed until now."""

    request_id: int


Event = Tick | MessageReceived | Proposed | Persisted | ReadRequested
