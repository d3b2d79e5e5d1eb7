"""Limits on what network clients can use at the Kafka listeners: connections, time, memory and log lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog_foundation.config.connections import UNLIMITED, ConnectionLimits
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_node.kafka.protocol.api_keys import ApiKey

REQUEST_BYTES: Final = 4 * 1024
"""The memory of a request in progress in addition to its frame: messages, tasks, futures."""
SMALL_BYTES: Final = 64 * 1024
"""Frames up to this size are received without a reservation, except those of Produce."""
_OTHERS_SHARE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits(ConnectionLimits):
    """The limits of all listeners of a node together.

    Fields before ``max_in_flight`` are settings, see KafkaListenerConfig.
    """

    request_max_bytes: int = 100 * 1024**2
    max_creation_rate: int = UNLIMITED
    """The maximum number of new connections per second."""
    send_buffer_bytes: int = -1
    """SO_SNDBUF; -1 means the system default."""
    receive_buffer_bytes: int = -1
    """SO_RCVBUF; -1 means the system default."""
    max_in_flight: int = 1_000
    """The maximum number of started requests per connection whose responses have not been sent."""
    frame_pause_s: float = 30.0
    """The longest allowed pause of a sender within a frame."""
    frame_bytes_per_s: int = 32 * 1024
    """The minimum rate of a frame, after a total allowance of ``frame_pause_s``."""
    wanted_frame_bytes: int = 4 * 1024**2
    """The size from which stricter limits apply to a frame while other requests wait for its memory.

    A sender must not block all others with a few bytes.
    """
    handshake_s: float = 10.0
    """The time for which a TLS handshake may last, and again the SASL exchange after it."""
    max_logins: int = 1_024
    """The number of SASL exchanges that may be in progress at the same time."""
    max_login_bytes: int = 64 * 1024**2
    """The memory of incomplete requests of all clients that are not authenticated."""
    wanted_pause_s: float = 2.0
    wanted_bytes_per_s: int = 1024**2


class ConnectionTimeouts:
    """The timeouts of one connection, checked periodically. ``now`` is the time in seconds of any clock."""

    __slots__ = ("_began", "_limits", "_received", "_taken", "_unsent", "last_active")

    def __init__(self, limits: ListenerLimits, now: float) -> None:
        self._limits = limits
        self._received = now
        self._began: float | None = None
        self._unsent = 0
        self._taken = now
        self.last_active = now
        """The time at which bytes last arrived or responses left."""

    def has_received(self, now: float) -> None:
        """Record that bytes arrived."""
        self.last_active = self._received = now

    def has_answered(self, now: float) -> None:
        """Record that responses left, or that the kernel took the rest of them."""
        self.last_active = now

    def has_stopped_taking(self, now: float) -> None:
        """Record that the kernel takes no more of the responses."""
        self._taken, self._unsent = now, 0

    def waits_for_frame(self, now: float) -> None:
        """Record that a part of a frame has arrived and the rest may follow."""
        if self._began is None:
            self._began = now

    def waits_for_no_frame(self) -> None:
        """Record that a frame is complete, that there is none, or that it may not be received yet."""
        self._began = None

    def check_reader(self, unsent: int, now: float) -> str | None:
        """Return the reason to close a client with ``unsent`` bytes of waiting responses, or None."""
        if unsent != self._unsent:
            self._unsent, self._taken = unsent, now
        if now - self._taken > self._limits.max_idle_s:
            return f"the client has read none of {unsent} unsent bytes for {self._limits.max_idle_s:g} s"
        return None

    def check_frame(self, size: int, received: int, now: float, *, is_wanted: bool = False) -> str | None:
        """Return the reason to close a client that has sent ``received`` bytes of a frame, or None.

        The frame has ``size`` bytes, 0 if unknown. It ``is_wanted`` if others wait for its memory.
        """
        if self._began is None:
            return None
        pause_s, bytes_per_s = self._limits.frame_pause_s, self._limits.frame_bytes_per_s
        if is_wanted and size >= self._limits.wanted_frame_bytes:
            pause_s, bytes_per_s = self._limits.wanted_pause_s, self._limits.wanted_bytes_per_s
        if now - max(self._received, self._began) > pause_s:
            return f"no byte arrived for {pause_s:g} s in the middle of a frame of {size} bytes"
        if now - self._began > pause_s + received / bytes_per_s:
            return f"only {received} of a frame's {size} bytes arrived in {now - self._began:.0f} s"
        return None

    def check_idle(self, now: float) -> str | None:
        """Return the reason to close a client without requests in progress, or None."""
        if now - self.last_active > self._limits.max_idle_s:
            return f"the connection was idle for {self._limits.max_idle_s:g} s"
        return None


class RequestBudgets:
    """The budgets of a node's requests, shared with gRPC. Produce requests wait for memory in ``produced``.

    All other requests share a separate quarter of ``limit``, and only large frames wait for it. Produce requests that
    use the whole budget may depend on the fetches of followers, and members of a group on the request of another
    member.
    """

    def __init__(self, produced: ByteBudget, limit: int) -> None:
        self._produced = produced
        self.others = ByteBudget(max(1, limit // _OTHERS_SHARE))
        """The budget of both protocols' large requests other than Produce."""

    def has_room_to_produce(self, size: int) -> bool:
        """Return whether a Produce request of ``size`` bytes need not wait for memory."""
        return self._produced.has_room(size + REQUEST_BYTES)

    def take_to_produce(self, size: int) -> None:
        """Take the memory of a Produce request that :meth:`has_room_to_produce`."""
        assert self._produced.reserve(size + REQUEST_BYTES) is None, "there is no room"

    def give_back_produced(self, size: int) -> None:
        """Give the memory of a Produce request back."""
        self._produced.give_back(size + REQUEST_BYTES)

    def reserve(self, api_key: int, size: int) -> Reservation | None:
        """Reserve the memory of a frame, or return None if it needs none."""
        if api_key == ApiKey.PRODUCE:
            return Reservation(self._produced, size + REQUEST_BYTES)
        return Reservation(self.others, size + REQUEST_BYTES) if size > SMALL_BYTES else None


class Reservation:
    """The memory of one frame, reserved or waited for. :meth:`release` is called once, at any time."""

    __slots__ = ("_budget", "_place", "_size")

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self._size = size
        self._place = budget.reserve(size)

    @property
    def is_taken(self) -> bool:
        """True if the frame may be received."""
        return self._place is None or self._place.done()

    @property
    def is_wanted(self) -> bool:
        """True if later requests wait for this memory."""
        return self.is_taken and self._budget.is_contended

    def call_when_taken(self, call: Callable[[], None]) -> None:
        """Call ``call`` once the memory is reserved or the wait is given up."""
        if self._place is not None:
            self._place.add_done_callback(lambda _: call())

    def release(self) -> None:
        """Release the memory, or stop waiting for it."""
        if self._place is None:
            self._budget.give_back(self._size)
        else:
            self._budget.withdraw(self._place, self._size)
