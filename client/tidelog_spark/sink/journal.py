"""The journal of sinks: which run may write, and which batch is committed. Pure.

Each record of the journal is the whole state of one sink, with a version. A record is valid if it is the first in the
log with the version that follows that of the valid record before it. So all readers agree on which of two competing
writers has won, and the state is that of the first record with the highest version. This holds for a compacted log as
well: keys are never written twice, and only records that a valid one has replaced are deleted.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Self

MAX_RETIRED = 16
"""The number of runs that a state remembers as having lost the right to write."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared transaction: its transactional id, and the producer that wrote it."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SinkState:
    """The state of a sink.

    ``owner`` is the run that may write, None if there is none. ``batch`` is the last committed batch, and ``committed``
    its transactions, which may still have to be completed. ``retired`` are the runs that can never be the owner again,
    the latest last.
    """

    version: int = 0
    owner: str | None = None
    batch: int | None = None
    committed: tuple[Prepared, ...] = ()
    retired: tuple[str, ...] = ()

    def has_committed(self, batch: int) -> bool:
        """Return True if the batch is committed."""
        return self.batch is not None and batch <= self.batch

    def claimed(self, run: str) -> SinkState:
        """Return the next state, in which ``run`` is the owner."""
        assert run not in self.retired
        retired = self.retired if self.owner is None else _with(self.retired, self.owner)
        return replace(self, version=self.version + 1, owner=run, retired=retired)

    def decided(self, run: str, batch: int, committed: tuple[Prepared, ...]) -> SinkState:
        """Return the next state, in which the owner's batch is committed with these transactions."""
        assert run == self.owner
        assert not self.has_committed(batch)
        return replace(self, version=self.version + 1, batch=batch, committed=committed)

    def without(self, run: str) -> SinkState:
        """Return the next state, in which ``run`` can never become the owner."""
        owner = None if self.owner == run else self.owner
        return replace(self, version=self.version + 1, owner=owner, retired=_with(self.retired, run))

    def to_json(self) -> bytes:
        """Return the value of the state's record."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, value: bytes) -> Self:
        """Return the state that a record has.

        Raises:
            ValueError: the record is not a state.
        """
        try:
            fields = json.loads(value)
            fields["committed"] = tuple(Prepared(**each) for each in fields["committed"])
            fields["retired"] = tuple(fields["retired"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the state of a sink: {value[:200]!r}") from error


def _with(runs: tuple[str, ...], run: str) -> tuple[str, ...]:
    return (*(other for other in runs if other != run), run)[-MAX_RETIRED:]


@dataclass(slots=True)
class Journal:
    """One sink's part of the journal, read from the start of the log.

    ``key`` and ``replaced_key`` are those of the records of the current state and of the one before it.
    """

    sink: str
    state: SinkState = field(default_factory=SinkState)
    key: bytes | None = None
    replaced_key: bytes | None = None

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply the next record of the log. Records of other sinks, deletions and invalid records have no effect.

        Raises:
            ValueError: the record is not a state.
        """
        if value is None or key.partition(b"/")[0] != self.sink.encode():
            return
        state = SinkState.from_json(value)
        if state.version > self.state.version:
            self.state, self.replaced_key, self.key = state, self.key, key


def key_of(sink: str, version: int, writer: str) -> bytes:
    """Return the key of a record, which no other record has: ``writer`` is unique to the attempt."""
    return f"{sink}/{version}/{writer}".encode()
