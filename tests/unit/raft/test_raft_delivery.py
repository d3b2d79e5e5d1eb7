"""A snapshot whose file is replaced by a newer one before the listener has read it is passed over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidelog_quorum.raft import delivery as delivery_module
from tidelog_quorum.raft.core.commands import Commit, ReadReady, RestoreSnapshot
from tidelog_quorum.raft.core.messages import Entry, EntryKind, Snapshot
from tidelog_quorum.raft.core.voters import VoterSet
from tidelog_quorum.raft.delivery import Delivery
from tidelog_quorum.raft.protocol import CommittedEntry
from tidelog_quorum.raft.storage.snapshot_files import write_snapshot


class Listener:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def on_commit(self, entries: Sequence[CommittedEntry]) -> None:
        self.seen += [entry.index for entry in entries]

    def reader_of(self, entry: CommittedEntry) -> None:
        return None

    def read_snapshot(self, last_index: int, last_term: int, chunks: Iterable[bytes]) -> Callable[[], None]:
        content = b"".join(chunks)
        return lambda: self.seen.append(content)


def begin(directory: Path) -> tuple[Delivery, Listener, list[Exception]]:
    listener, errors = Listener(), list[Exception]()
    either: Any = listener
    reads = lambda request_id, _: listener.seen.append(f"read {request_id}")  # noqa: E731
    return Delivery(directory, either, VoterSet(), lambda: None, reads, errors.append), listener, errors


def test_snapshot_that_a_newer_one_has_replaced_is_passed_over(tmp_path: Path, wait_until: Any) -> None:
    async def main() -> None:
        delivery, listener, errors = begin(tmp_path)
        delivery.deliver(RestoreSnapshot(Snapshot(5, 1, VoterSet(), 3, 0)))
        delivery.deliver(ReadReady(7, 5))
        delivery.deliver(Commit((Entry(6, 1, EntryKind.DATA, b"x"),)))
        written = write_snapshot(tmp_path, 9, 1, [b"newer"], lambda: False)
        assert written is not None
        await asyncio.sleep(0.05)
        delivery.deliver(RestoreSnapshot(Snapshot(9, 1, VoterSet(), *written)))
        delivery.deliver(Commit((Entry(10, 1, EntryKind.DATA, b"y"),)))
        await wait_until(lambda: 10 in listener.seen)
        assert listener.seen == [b"newer", "read 7", 10]
        assert not errors
        await delivery.stop()

    asyncio.run(main())


def test_snapshot_that_is_gone_for_good_is_an_error(
    tmp_path: Path, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_module, "_NEWER_SNAPSHOT_S", 0.05)

    async def main() -> None:
        delivery, listener, errors = begin(tmp_path)
        delivery.deliver(RestoreSnapshot(Snapshot(5, 1, VoterSet(), 3, 0)))
        await wait_until(lambda: errors)
        assert "No such file" in str(errors[0])
        assert not listener.seen
        await delivery.stop()

    asyncio.run(main())
