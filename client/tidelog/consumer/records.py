"""The queue to the application: fetched records, events, and functions to call on its thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tidelog.consumer.core.commits import Commits, OffsetAndMetadata
from tidelog.consumer.core.events import Deliver, Report
from tidelog.consumer.core.positions import Positions
from tidelog.consumer.reading import Reading
from tidelog.message import Message
from tidelog.monitor import Monitor
from tidelog_foundation.errors import INSECURE, OUTAGES, KafkaError, TidelogError

if TYPE_CHECKING:
    import pyarrow

_MADE_AT_ONCE = 500
"""The number of messages that are created at once for poll() and for calls of consume() that ask for fewer."""

_Item: TypeAlias = Deliver | Report | Message
R = TypeVar("R")
Call: TypeAlias = Callable[[Any], None]
"""Called with the consumer, on the application's thread."""


class RecordQueue:
    """A queue that the network thread fills and one application thread at a time empties; ``lock`` guards both ends."""

    def __init__(
        self,
        monitor: Monitor,
        positions: Positions,
        commits: Commits | None,
        on_room: Callable[[], None],
        on_error: Callable[[KafkaError], object] | None = None,
    ) -> None:
        """Create a queue; it calls ``on_room`` when a delivery is consumed while the queue counts as full.

        The queue stores the offsets after returned messages in ``commits``, unless that is None. ``on_error``, the
        application's ``error_cb``, gets the errors of the whole client (no node answers). Without it, they become
        messages.
        """
        self._on_error = on_error
        self._is_error_posted = False
        self._lock = monitor.lock
        self._news = monitor.changed
        self._on_room = on_room
        self._positions = positions
        self._commits = commits
        self._items: deque[_Item] = deque()
        self._calls: deque[tuple[Call, bool]] = deque()
        self._reading: Reading | None = None
        # The current reading's messages: all that were created, and those not returned yet, the next one last.
        self._made: list[Message] = []
        self._ready: list[Message] = []
        self._settled = 0
        self._seen = 0
        self._closed = False

    def put(self, item: _Item) -> None:
        """Add a delivery or an event. The caller holds the lock."""
        if self._closed:
            return
        error = _error_of(item)
        if error is not None and self._on_error is not None and error.error_code() in OUTAGES:
            if error.error_code() not in INSECURE:
                self._post_error(self._on_error, error)
            return
        self._items.append(item)
        self._news.notify_all()

    def tell_insecure(self, error: TidelogError) -> None:
        """Pass a failure of TLS or a refused login to ``on_error`` at once; without it, the outage that follows becomes
        a message.
        """
        if self._on_error is not None:
            self._post_error(self._on_error, error.error)

    def put_back(self, event: Message) -> None:
        """Put an event back at the front of the queue."""
        with self._lock:
            self._items.appendleft(event)

    def post(self, call: Call, *, ends_reading: bool = False) -> None:
        """Call a function on the application's thread, before any record that it does not have yet.

        With ``ends_reading``, the application first gets the messages already taken for it, because the function may
        revoke their partition.
        """
        with self._lock:
            self._calls.append((call, ends_reading))
            self._news.notify_all()

    def next_call(self, *, is_reading: bool = False) -> Call | None:
        """Return the next function to call; ``is_reading`` means that messages were taken but not returned yet."""
        with self._lock:
            if not self._calls or (is_reading and self._calls[0][1]):
                return None
            return self._calls.popleft()[0]

    @property
    def ends_reading(self) -> bool:
        """True if the messages taken must be returned before anything else."""
        with self._lock:
            return bool(self._calls) and self._calls[0][1]

    def notify(self) -> None:
        """Wake all waiting threads. The caller holds the lock."""
        self._news.notify_all()

    def drop_stale(self) -> None:
        """Drop records fetched before a seek, pause or assignment. The caller holds the lock."""
        stale = [i for i in self._items if not self._is_current(i)]
        for item in stale:
            self._items.remove(item)
            self._release(item)
        if self._reading is not None and not self._is_current(self._reading.item):
            self._release(self._reading.item)
            self._drop_reading()

    def settle(self) -> None:
        """Move the position and the stored offset past the last returned message.

        They lag behind while messages are returned one by one, so their readers and writers call this first.
        """
        with self._lock:
            taken = len(self._made) - len(self._ready)
            if taken > self._settled and self._reading is not None:
                last = self._made[taken - 1]
                offset, epoch = last.offset(), last.leader_epoch()
                assert offset is not None
                self._settled = taken
                self._move(self._reading.item, offset + 1, -1 if epoch is None else epoch)

    def has_read(self) -> bool:
        """Return True if :meth:`take_ready` or :meth:`fill` has returned messages since the last call."""
        with self._lock:
            seen, self._seen = self._seen, len(self._ready)
            return seen != self._seen

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for something to read or call, and return True if there is. :meth:`close` ends the wait."""
        with self._lock:
            self._news.wait_for(lambda: self._has_news or self._closed, timeout_s)
            return self._has_news

    def wait_call(self, timeout_s: float, is_over: Callable[[], bool]) -> bool:
        """Wait for a function to call or ``is_over()``, called under the lock; return False on timeout."""
        with self._lock:
            return self._news.wait_for(lambda: bool(self._calls) or is_over(), timeout_s)

    def close(self) -> None:
        """Drop everything, and wake all waiting threads."""
        with self._lock:
            self._closed = True
            self._items.clear()
            self._calls.clear()
            self._drop_reading()
            self._news.notify_all()

    def take(self, most: int) -> list[Message]:
        """Return up to ``most`` available records and events, and move the application's positions past them."""
        messages = self._take_made(most)
        while (wanted := most - len(messages)) > 0:
            if wanted >= _MADE_AT_ONCE:
                found = self._read(lambda reading: reading.messages(most - len(messages)), self._consume)
            elif isinstance(found := self._read_ahead(), list):
                found = self._take_made(wanted)
            if found is None:
                break
            messages.extend([found] if isinstance(found, Message) else found)
        return messages

    def fill(self, messages: list[Message], most: int) -> bool:
        """Add the next ``most`` messages to a list if they exist already and no call is pending; else return False.

        An interrupt leaves no message outside of both the list and the queue.
        """
        with self._lock:
            ready = self._ready
            if len(ready) < most or self._calls:
                return False
            if most == 1:
                messages.append(ready[-1])
            else:
                messages += ready[: -most - 1 : -1]
            del ready[-most:]
            return True

    def take_ready(self) -> Message | None:
        """Return the next message if it exists already and no call is pending."""
        with self._lock:
            return self._ready.pop() if self._ready and not self._calls else None

    def take_one(self) -> Message | None:
        """Return the next record or event, as :meth:`take` does; :meth:`settle` moves the position later."""
        while not self._calls:
            if (ready := self.take_ready()) is not None:
                return ready
            self._forget_made()
            if not isinstance(found := self._read_ahead(), list):
                return found
        return None

    def take_rows(self, most: int) -> pyarrow.RecordBatch | Message | None:
        """Return up to ``most`` rows of one delivery, or an event; None if there is nothing.

        Raises:
            ModuleNotFoundError: pyarrow is not installed.
        """
        self._go_back()
        return self._read(lambda reading: reading.rows(most), self._consume)

    @property
    def waiting(self) -> int:
        """The number of waiting deliveries, events and calls. The caller holds the lock."""
        return len(self._items) + len(self._calls)

    def _post_error(self, on_error: Callable[[KafkaError], object], error: KafkaError) -> None:
        # Every partition reports an outage; one call covers all earlier ones.
        if not self._is_error_posted:
            self._is_error_posted = True
            self.post(lambda _: self._call_error(on_error, error))

    def _call_error(self, on_error: Callable[[KafkaError], object], error: KafkaError) -> None:
        with self._lock:
            self._is_error_posted = False
        on_error(error)

    @property
    def _has_news(self) -> bool:
        return bool(self._items or self._calls or self._ready)

    def _take_made(self, most: int) -> list[Message]:
        with self._lock:
            taken: list[Message] = []
            self.fill(taken, min(most, len(self._ready)))
            if not self._ready:
                self._forget_made()
            self.settle()
            return taken

    def _read(self, read: Callable[[Reading], R | None], take: Callable[[Reading, R], bool]) -> R | Message | None:
        """Return what ``read`` finds next in a delivery, or an event; None if there is nothing, or a call is pending.

        ``take`` returns False if a seek, pause or assignment has overtaken the result.
        """
        while not self._calls:
            reading = self._next_reading()
            if reading is None or isinstance(reading, Message):
                return reading
            try:
                found = read(reading)
            except TidelogError as error:
                return self._fail(reading, error)
            if not found:
                self._finish(reading)
            elif take(reading, found):
                return found
        return None

    def _read_ahead(self) -> list[Message] | Message | None:
        """Create the next messages to return one by one, or return an event; None if there is nothing."""
        return self._read(lambda reading: reading.messages(_MADE_AT_ONCE), self._make_ready)

    def _make_ready(self, reading: Reading, made: list[Message]) -> bool:
        with self._lock:
            if self._reading is reading:
                self._made, self._ready = made, made[::-1]
            return self._reading is reading

    def _forget_made(self) -> None:
        """Clear the created messages after all were returned."""
        with self._lock:
            self.settle()
            self._made, self._ready, self._settled = [], [], 0

    def _go_back(self) -> None:
        """Take back created messages that were not returned, to read them in another form."""
        with self._lock:
            ready, reading = self._ready, self._reading
            self._forget_made()
            if ready and reading is not None:
                offset = ready[-1].offset()
                assert offset is not None
                reading.go_back(offset)

    def _drop_reading(self) -> None:
        self._reading = None
        self._made, self._ready, self._settled = [], [], 0

    def _next_reading(self) -> Reading | Message | None:
        reading = self._reading
        if reading is not None:
            return reading
        item = self._pop()
        if isinstance(item, Deliver):
            self._reading = Reading(item)
            return self._reading
        return _event(item) if isinstance(item, Report) else item

    def _pop(self) -> _Item | None:
        with self._lock:
            while self._items:
                item = self._items.popleft()
                if self._is_current(item):
                    return item
                self._release(item)
        return None

    def _consume(self, reading: Reading, _: object) -> bool:
        with self._lock:
            return self._reading is reading and self._moved(reading)

    def _finish(self, reading: Reading) -> None:
        with self._lock:
            if self._reading is reading:
                self._moved(reading)
                self._release(reading.item)
                self._drop_reading()
        if self._positions.is_full:
            self._on_room()

    def _moved(self, reading: Reading) -> bool:
        return self._move(reading.item, reading.next_offset, reading.leader_epoch)

    def _move(self, item: Deliver, offset: int, leader_epoch: int) -> bool:
        if not self._positions.consumed(item.topic, item.partition, offset, item.generation):
            return False
        if self._commits is not None:
            self._commits.store((item.topic, item.partition), OffsetAndMetadata(offset, leader_epoch))
        return True

    def _fail(self, reading: Reading, error: TidelogError) -> Message:
        item = reading.item
        with self._lock:
            state = self._positions.state(item.topic, item.partition)
            offset = item.offset if state is None or state.position is None else state.position
            if self._reading is reading:
                self._positions.stop((item.topic, item.partition))
                self.drop_stale()
        return _event(Report(item.topic, item.partition, item.generation, offset, error))

    def _is_current(self, item: _Item) -> bool:
        return isinstance(item, Message) or self._positions.is_current(item.topic, item.partition, item.generation)

    def _release(self, item: _Item) -> None:
        if isinstance(item, Deliver):
            self._positions.released(len(item.records))


def _error_of(item: _Item) -> KafkaError | None:
    if isinstance(item, Report):
        return item.error.error
    return item.error() if isinstance(item, Message) else None


def _event(report: Report) -> Message:
    error = report.error.error
    offset = report.offset if report.offset >= 0 else None
    return Message(report.topic, report.partition, offset, None, error.str().encode(), error=error)
