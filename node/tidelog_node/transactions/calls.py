"""The open calls of a shard, the answers that follow the commit of a record, and the deadlines of waiting calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.shards.events import Respond
from tidelog_node.transactions.entries import Entries, Entry, Waiting
from tidelog_node.transactions.events import Command
from tidelog_node.transactions.requests import TransactionResponse, refuse

CONCURRENT_WAIT_MS = 100
"""The longest wait of a request for the end of the previous transaction; Kafka's brokers retry for as long."""
_MAX_WAITING = 100
"""The number of requests that wait for one transactional id."""


class Calls:
    """The calls of one shard. Each is answered once, by a command, unless its caller has gone."""

    def __init__(self, entries: Entries, commands: list[Command]) -> None:
        self._entries = entries
        self._commands = commands
        self._open: dict[int, str] = {}
        """The transactional id of each open call, empty for calls without one."""
        self._after: dict[int, list[tuple[int, TransactionResponse]]] = {}
        """The answers that follow the commit of another request's write, by the id of that write."""
        self._waits: deque[tuple[int, int]] = deque()
        """The deadlines of waiting calls, with their call ids, in order. Some of the calls may have been answered."""

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next :meth:`end_waits`."""
        return self._waits[0][0] if self._waits else None

    def begin(self, call_id: int, transactional_id: str) -> None:
        """Record a call."""
        self._open[call_id] = transactional_id

    def abandon(self, call_id: int) -> None:
        """Forget a call whose caller has gone."""
        self._stop_waiting(self._open.pop(call_id, ""), call_id)

    def answer(self, call_id: int, response: TransactionResponse) -> None:
        """Answer a call, now."""
        if call_id in self._open:
            del self._open[call_id]
            self._commands.append(Respond(call_id, response))

    def answer_after_writes(self, entries: Iterable[Entry], call_id: int, response: TransactionResponse) -> None:
        """Answer a call once every record of these transactional ids that is in the log is committed."""
        last = max((entry.open_writes[-1] for entry in entries if entry.open_writes), default=None)
        if last is None:
            self.answer(call_id, response)
        else:
            self._after.setdefault(last, []).append((call_id, response))

    def note_committed(self, write_id: int) -> None:
        """Send the answers that have waited for a write."""
        for call_id, response in self._after.pop(write_id, ()):
            self.answer(call_id, response)

    def note_failed(self, write_id: int, entry: Entry, error: TidelogError) -> None:
        """Refuse the requests that wait for a transactional id. Answers that followed the write follow those before."""
        for call_id, response in self._after.pop(write_id, ()):
            self.answer_after_writes([entry], call_id, response)
        self.refuse_waiting(entry, error)

    def refuse_waiting(self, entry: Entry, error: TidelogError) -> None:
        """Refuse all requests that wait for a transactional id."""
        while entry.waiting:
            waiting = entry.waiting.popleft()
            self.answer(waiting.call_id, refuse(waiting.request, error))

    def wait(self, entry: Entry, waiting: Waiting, now_ms: int) -> None:
        """Let a request wait for the end of a transition."""
        if len(entry.waiting) >= _MAX_WAITING:
            self.answer(waiting.call_id, refuse(waiting.request, _concurrent(waiting.request.transactional_id)))
            return
        entry.waiting.append(waiting)
        self._waits.append((now_ms + CONCURRENT_WAIT_MS, waiting.call_id))

    def end_waits(self, now_ms: int) -> None:
        """Refuse the requests that have waited too long."""
        while self._waits and self._waits[0][0] <= now_ms:
            _, call_id = self._waits.popleft()
            transactional_id = self._open.get(call_id, "")
            waiting = self._stop_waiting(transactional_id, call_id)
            if waiting is not None:
                self.answer(call_id, refuse(waiting.request, _concurrent(transactional_id)))

    def check_invariants(self, written: Iterable[int], listed: Iterable[int], writes: Iterable[int]) -> None:
        """Assert that each open call waits for something: a transition, a write, or the end of a listing."""
        waiting = [w.call_id for _, entry in self._entries for w in entry.waiting]
        answered = [call_id for answers in self._after.values() for call_id, _ in answers]
        assert len(waiting) == len(set(waiting))
        assert {*waiting} <= self._open.keys()
        assert self._open.keys() <= {*waiting, *answered, *written, *listed}
        assert {*waiting} <= {call_id for _, call_id in self._waits}
        assert self._after.keys() <= {*writes}

    def _stop_waiting(self, transactional_id: str, call_id: int) -> Waiting | None:
        entry = self._entries.peek(transactional_id)
        found = next((w for w in entry.waiting if w.call_id == call_id), None) if entry is not None else None
        if entry is not None and found is not None:
            entry.waiting.remove(found)
            self._entries.drop_unneeded(transactional_id)
        return found


def _concurrent(transactional_id: str) -> TidelogError:
    text = f"the previous transaction of {transactional_id!r} is still being completed"
    return error_for(ErrorCode.CONCURRENT_TRANSACTIONS, text)
