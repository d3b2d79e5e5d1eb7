"""The use of a client's quotas by one request, and the delay of the client that follows from it."""

from __future__ import annotations

import sys
from typing import Final

from tidelog_node.quotas.client_quotas import ClientQuotas, QuotaKind

_PERCENT_PER_NS: Final = 100 / 1_000_000_000


class RequestUsage:
    """The usage of one request, in the order of its calls: enter, leave, ..., append or fetch, answer, end.

    The request percentage counts the time between :meth:`enter` and :meth:`leave`, in which the event loop works on the
    request: decoding, the handler, encoding. It does not count waits, other threads, and the bytes' way through the
    kernel. As in Kafka, the time up to the response decides about a delay, and the rest counts for later requests.
    """

    __slots__ = ("_client_id", "_entered_ns", "_quotas", "_spent_ns", "_user", "muted_until_ms")

    def __init__(self, quotas: ClientQuotas, user: str, client_id: str) -> None:
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        self._spent_ns = 0
        self._entered_ns: int | None = None
        self.muted_until_ms = 0
        """The time until which the client is delayed."""

    @property
    def delay_ms(self) -> int:
        """The milliseconds for which the client is delayed from now on."""
        return max(0, self.muted_until_ms - self._quotas.now_ms()) if self.muted_until_ms else 0

    @property
    def fetch_max_bytes(self) -> int:
        """The largest fetch that the quota ever permits; a larger one would always be refused."""
        quotas = self._quotas
        meter = quotas.fetch.meter_of(self._user, self._client_id, quotas.now_ms())
        return sys.maxsize if meter is None else int(min(meter.largest_value, sys.maxsize))

    def enter(self) -> None:
        """Begin to count the time."""
        self._entered_ns = self._quotas.now_ns()

    def leave(self) -> None:
        """Count the time since :meth:`enter`."""
        if self._entered_ns is not None:
            self._spent_ns += self._quotas.now_ns() - self._entered_ns
            self._entered_ns = None

    def append(self, size: int) -> None:
        """Count the bytes of a produce request. They are appended in any case; the client is delayed afterwards."""
        quotas = self._quotas
        now_ms = quotas.now_ms()
        meter = quotas.produce.meter_of(self._user, self._client_id, now_ms)
        if meter is not None:
            self._delay_by(QuotaKind.PRODUCE, meter.record(size, now_ms), now_ms)

    def fetch(self, size: int) -> int:
        """Count the bytes of a fetch response, and return 0 if it may be sent.

        Otherwise the bytes do not count, and the result is the milliseconds for which the client is delayed. A batch
        that is larger than the quota ever permits is sent once nothing else counts, unlike in Kafka.
        """
        quotas = self._quotas
        now_ms = quotas.now_ms()
        self._charge_time(now_ms)
        meter = quotas.fetch.meter_of(self._user, self._client_id, now_ms)
        if meter is None:
            return self.delay_ms
        if size > meter.largest_value and not self.muted_until_ms and not meter.rate(now_ms):
            # A single batch can be larger than the quota ever permits. Without this, its reader would wait for ever.
            meter.note(size, now_ms)
            return 0
        self._delay_by(QuotaKind.FETCH, meter.record(size, now_ms), now_ms)
        if self.muted_until_ms:
            meter.note(-size, now_ms)
        return self.delay_ms

    def answer(self, delay_ms: int = 0) -> int:
        """Count the time so far, and return the milliseconds for which the client is delayed, at least ``delay_ms``."""
        now_ms = self._quotas.now_ms()
        self._charge_time(now_ms)
        self._delay(delay_ms, now_ms)
        return self.delay_ms

    def note_mutation_delay(self, delay_ms: int) -> None:
        """Delay the client's next mutations, as the controller's answer asks."""
        quotas = self._quotas
        now_ms = quotas.now_ms()
        meter = quotas.mutation.meter_of(self._user, self._client_id, now_ms)
        if meter is not None:
            meter.muted_until_ms = max(meter.muted_until_ms, now_ms + delay_ms)
        self._delay_by(QuotaKind.MUTATION, delay_ms, now_ms)

    def end(self) -> None:
        """Count the rest of the time, for later requests."""
        self.leave()
        percent, self._spent_ns = self._spent_ns * _PERCENT_PER_NS, 0
        if percent:
            quotas = self._quotas
            now_ms = quotas.now_ms()
            meter = quotas.request.meter_of(self._user, self._client_id, now_ms)
            if meter is not None:
                meter.note(percent, now_ms)

    def _charge_time(self, now_ms: int) -> None:
        quotas = self._quotas
        meter = quotas.request.meter_of(self._user, self._client_id, now_ms)
        if meter is None:
            return
        if self._entered_ns is not None:
            now_ns = quotas.now_ns()
            self._spent_ns += now_ns - self._entered_ns
            self._entered_ns = now_ns
        percent, self._spent_ns = self._spent_ns * _PERCENT_PER_NS, 0
        self._delay_by(QuotaKind.REQUEST, meter.record(percent, now_ms), now_ms)

    def _delay_by(self, quota: QuotaKind, delay_ms: int, now_ms: int) -> None:
        if delay_ms > 0:
            self._quotas.throttled.count(quota, delay_ms)
            self._delay(delay_ms, now_ms)

    def _delay(self, delay_ms: int, now_ms: int) -> None:
        if delay_ms > 0:
            self.muted_until_ms = max(self.muted_until_ms, now_ms + delay_ms)
