"""One connection of a Kafka client. Its requests begin, and its responses are sent, in the order of arrival."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter_ns
from typing import Final, Protocol, cast

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.logs.limit import LogLimit
from tidelog_foundation.logs.request_id import begin_request, end_request
from tidelog_foundation.measured_steps import MeasuredSteps
from tidelog_foundation.security import ANONYMOUS, Principal
from tidelog_node.event_loop import Pending
from tidelog_node.handlers.response_budget import ResponseBudget
from tidelog_node.kafka.apis.api_versions import unsupported_version
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.frames import FrameReceiver
from tidelog_node.kafka.protocol.headers import RequestHeader, read_request_header, response_has_tags
from tidelog_node.kafka.protocol.pipeline import Exchange, Pipeline
from tidelog_node.kafka.protocol.reader import Http2PrefaceError, MalformedMessageError, Reader
from tidelog_node.kafka.served import Api, Body, CloseConnection, KafkaNode, Request, is_of_nodes
from tidelog_node.kafka.server.begun_request import BegunRequest
from tidelog_node.kafka.server.callers import Callers
from tidelog_node.kafka.server.limits import ConnectionTimeouts, ListenerLimits, RequestBudgets, Reservation
from tidelog_node.kafka.server.outbox import Outbox
from tidelog_node.kafka.server.request_times import RequestTimes
from tidelog_node.quotas.usage import RequestUsage

_BURST: Final = 32
"""The maximum number of requests of one connection that begin before other tasks run."""
_LARGE_BYTES: Final = 16 * 1024


class Owner(Protocol):
    """The registry of a node's connections."""

    def admit(self, connection: Connection) -> bool:
        """Accept or refuse a new connection."""

    def forget(self, connection: Connection) -> None:
        """Remove a lost connection."""


@dataclass(frozen=True, slots=True)
class Served:
    """The state that all connections of a node share."""

    apis: Mapping[int, Api]
    node: KafkaNode
    requests: RequestBudgets
    responses: ResponseBudget
    limits: ListenerLimits
    scratch: bytearray
    log: LogLimit
    """Log lines that clients cause."""
    failures: LogLimit
    """Log lines of internal errors, which clients must not be able to suppress."""
    times: RequestTimes
    short_way: Callable[..., ShortWay] | None = None
    """Makes the short way of a connection from it and its parts; None without one."""


class ShortWay(Protocol):
    """The way of the most frequent requests in few steps, with the outcome of all others."""

    def serve(self, received: int, received_ns: int) -> int:
        """Serve requests at the beginning of the ``received`` bytes in the buffer, and return their size in bytes.

        It stops before the first request that must take the other way, having changed nothing for it.

        Raises:
            CloseConnection: The connection is closed without an answer.
        """

    def close(self) -> None:
        """Release all resources, when the connection is lost."""


class Reauthentication(Protocol):
    """The SASL session of a connection (KIP-368)."""

    @property
    def has_token(self) -> bool:
        """True if the client has logged in with a delegation token, which a re-authentication may change."""

    def takes(self, api_key: int) -> bool:
        """Return whether a request belongs to a re-authentication.

        Raises:
            CloseConnection: The session has expired.
        """

    def begin(self, frame: bytes, end: Callable[[], None]) -> Body | Awaitable[Body]:
        """Process such a request, and return the response. ``end`` makes the connection close after it.

        Raises:
            CloseConnection: The connection is closed without a response. The awaitable may raise it too.
        """


class Connection(asyncio.BufferedProtocol):
    """A connection that the listener has accepted.

    An answer that is available at once is sent in the callback that received the request. Reading pauses while the next
    request may not begin: because of its order, because responses are not taken, or because ``limits.max_in_flight``
    requests are in progress. It also pauses while the next frame waits for memory, and while a quota delays the client,
    whose responses are sent nevertheless (KIP-219). When the connection is lost, all its
    work is cancelled.

    Invalid bytes, an API or version that is not served, and an error that a response cannot express close the
    connection, as in Kafka's Processor. So does an unexpected exception. Kafka would turn it into an error response,
    which here only the API itself could build. To a client a closed connection correctly means that the outcome is
    unknown and that it may retry. The error is logged with its traceback.
    """

    def __init__(
        self,
        served: Served,
        owner: Owner,
        listener: str,
        principal: Principal = ANONYMOUS,
        session: Reauthentication | None = None,
    ) -> None:
        self.listener = listener
        self._principal = principal
        self._session = session
        self.host = ""
        """The client's address."""
        self.file = -1
        """The file descriptor of the socket."""
        self._served = served
        self._owner = owner
        self.loop = asyncio.get_running_loop()
        self._frames = FrameReceiver(served.scratch, served.limits.request_max_bytes)
        self.pipeline = Pipeline(served.limits.max_in_flight)
        """The requests in progress."""
        self._timeouts = ConnectionTimeouts(served.limits, self.loop.time())
        self._memory: Reservation | None = None
        """The memory of the next frame."""
        self._mute: asyncio.TimerHandle | None = None
        """The end of the delay by quotas."""
        self._muted_until_ms = 0
        self._received_ns = 0
        """The time at which bytes last arrived, on the clock of the request times."""
        self._short_way: ShortWay | None = None
        self._unsent: list[BegunRequest] = []
        """The exchanges whose responses the kernel has not taken."""
        self._is_scheduled = self._is_blocked = self._is_draining = self._is_closed = False

    @property
    def is_idle(self) -> bool:
        """True if no request is in progress and no response waits."""
        return not self.pipeline and not self._outbox.is_paused

    @property
    def last_active(self) -> float:
        """The time, in the loop's seconds, at which bytes last arrived or responses left."""
        return self._timeouts.last_active

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start, unless there are too many connections."""
        # uvloop's transports are not of asyncio's class.
        self._transport = cast(asyncio.Transport, transport)
        self._outbox = Outbox(self._transport, self._served.responses)
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        self.file = transport.get_extra_info("socket").fileno()
        opened_us = time.monotonic_ns() // 1_000
        port = peer[1] if peer else 0
        self._callers = Callers(self.listener, self.host, opened_us, self._principal, port)
        served = self._served
        if served.short_way is not None:
            self._short_way = served.short_way(
                self, served, self._transport, self._outbox, self._callers, self._session
            )
        if not peer or not self._owner.admit(self):
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for received bytes."""
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        if self._is_closed:
            return
        self._timeouts.has_received(self.loop.time())
        self._received_ns = perf_counter_ns()
        self._frames.received(nbytes)
        if self._short_way is None or not self._serve_short(self._short_way):
            self._pump()

    def pause_writing(self) -> None:
        """Record that responses wait for the client."""
        self._timeouts.has_stopped_taking(self.loop.time())
        self._outbox.pause()

    def resume_writing(self) -> None:
        """Record that no response waits any more."""
        self._timeouts.has_answered(self.loop.time())
        self._outbox.resume()
        self._count_sent()
        self._schedule()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release all resources and cancel all work."""
        self._is_closed = True
        for exchange in cast(list[BegunRequest], self.pipeline.clear()):
            if exchange.is_answered:
                self._outbox.discard(exchange.size)
            elif exchange.work is None:
                exchange.release()
            else:
                exchange.work.cancel()
        self._outbox.close()
        if self._short_way is not None:
            self._short_way.close()
        if self._mute is not None:
            self._mute.cancel()
        if self._memory is not None:
            self._memory.release()
            self._memory = None
        self._owner.forget(self)

    def abort(self) -> None:
        """Close at once. Unsent responses are lost."""
        self._is_closed = True
        self._transport.abort()

    def drain(self) -> None:
        """Begin no more requests, and close once those in progress are answered and all responses are sent."""
        self._is_draining = True
        if not self._is_closed:
            self._pump()

    def overdue(self, now: float) -> str | None:
        """Return the reason to close the connection at ``now``, in the loop's seconds, or None.

        Call it periodically, since it compares the state with that of the last call.
        """
        reason = None
        if self._is_closed:
            return None
        if self._outbox.is_paused:
            reason = self._timeouts.check_reader(self._outbox.waiting_bytes, now)
        elif self.is_idle and not self._is_blocked:
            reason = self._timeouts.check_idle(now)
        if reason is None and self._frames.is_partial:
            announced = self._frames.announced()
            is_wanted = self._memory is not None and self._memory.is_wanted
            size = announced.size if announced else 0
            reason = self._timeouts.check_frame(size, self._frames.partial_bytes, now, is_wanted=is_wanted)
        return reason

    def hold(self, exchange: Exchange) -> None:
        """Begin the exchange of a request that the short way has appended and cannot answer yet."""
        self.pipeline.begin(exchange)

    def release_held(self, exchange: Exchange) -> bool:
        """Remove a held request that is now answered, if its response may leave at once. Else return False."""
        if self._is_closed or self._is_blocked or self._is_draining or self._outbox.is_paused:
            return False
        if not self.pipeline.remove_only(exchange):
            return False
        self._timeouts.has_answered(self.loop.time())
        return True

    def answer_held(self, exchange: BegunRequest, answer: Body | None) -> None:
        """Send the response to a held request when it is its turn."""
        if self._is_closed:
            exchange.release()
        else:
            self._answer(exchange, answer)
            self._schedule()

    def settle(self, exchange: BegunRequest, work: Pending[Body | None]) -> None:
        """Send the response of settled work when it is its turn."""
        self._take_outcome(exchange, work, work.error, is_cancelled=work.is_cancelled)
        if len(self.pipeline) > 1 or self._is_blocked or self._is_draining:
            self._schedule()
        elif not self._is_closed:
            # No response to join it with and no request can begin now, so the answer is sent in the same step.
            self._flush()

    def note_answered(
        self,
        api_key: int,
        correlation_id: int,
        size: int,
        received_ns: int,
        begun_ns: int,
        local_ns: int,
        answered_ns: int,
        now_ns: int,
    ) -> None:
        """Count a request that the short way has answered, slowly or to a client that takes no more for now."""
        exchange = self._new_exchange(api_key, correlation_id, overlaps=True, has_tags=False)
        exchange.received_ns, exchange.begun_ns = received_ns, begun_ns
        exchange.local_ns, exchange.answered_ns = local_ns, answered_ns
        if self._outbox.is_paused:
            self._outbox.note_unsent(size)
            self._unsent.append(exchange)
        else:
            exchange.end(now_ns)

    def _serve_short(self, short_way: ShortWay) -> bool:
        """Let the short way serve the first received requests, and return whether nothing is left for the other way.

        It serves none while something keeps the next one from beginning.
        """
        if (
            self._is_blocked
            or self._is_draining
            or self._outbox.is_paused
            or self._mute is not None
            or self._memory is not None
        ):
            return False
        frames = self._frames
        try:
            served = short_way.serve(frames.shared_bytes, self._received_ns)
        except CloseConnection as error:
            self._fail(str(error))
            return True
        except Exception as error:  # noqa: BLE001  # logged; one connection ends, not the node
            self._fail_unexpectedly(error)
            return True
        if served:
            frames.skip(served)
            self._timeouts.waits_for_no_frame()
            if not frames.is_partial:
                return True
        if frames.is_small_part:
            # It stays without a reservation, and the short way serves it with the bytes to come.
            self._timeouts.waits_for_frame(self.loop.time())
            frames.keep()
            return True
        return False

    def _pump(self) -> None:
        """Begin the possible requests, send the available answers, and pause or resume reading."""
        try:
            is_blocked = self._begin_all()
        except Http2PrefaceError as error:
            self._fail(str(error), logging.DEBUG)
            return
        except (MalformedMessageError, CloseConnection) as error:
            self._fail(str(error))
            return
        except Exception as error:  # noqa: BLE001  # logged; one connection ends, not the node
            self._fail_unexpectedly(error)
            return
        self._flush()
        if self._is_draining and self.is_idle:
            self._is_closed = True
            self._transport.close()
            return
        if is_blocked or not self._frames.is_partial:
            self._timeouts.waits_for_no_frame()
        else:
            self._timeouts.waits_for_frame(self.loop.time())
        if is_blocked is not self._is_blocked:
            self._is_blocked = is_blocked
            self._set_reading(not is_blocked)
        self._frames.keep()

    def _begin_all(self) -> bool:
        """Begin requests, and return whether a received request must wait or its memory is not available."""
        frames, apis = self._frames, self._served.apis
        for _ in range(_BURST):
            announced = frames.announced()
            if announced is None:
                return False
            if self._is_draining or self._mute is not None or not self._has_memory(*announced):
                return True
            if not frames.is_whole():
                return False
            api = apis.get(announced.api_key)
            if self._outbox.is_paused or not self.pipeline.may_begin(overlaps=api is not None and api.overlaps):
                return True
            self._timeouts.waits_for_no_frame()
            self._begin(api, frames.take())
        if frames.announced() is None:
            return False
        self._schedule()
        return True

    def _has_memory(self, size: int, api_key: int) -> bool:
        if self._memory is None:
            self._memory = self._served.requests.reserve(api_key, size)
            if self._memory is None:
                return True
            self._memory.call_when_taken(self._schedule)
        return self._memory.is_taken

    def _begin(self, api: Api | None, frame: bytearray) -> None:
        header = read_request_header(frame)
        _, version, correlation_id, _, _ = header
        if api is None:
            raise MalformedMessageError(f"API {header.api_key} version {version} is not supported")
        first, last = api.versions
        is_served = first <= version <= last
        if not is_served and api.key != ApiKey.API_VERSIONS:
            raise MalformedMessageError(
                f"{api.key.name} version {version} is not supported, versions {first} to {last} are"
            )
        is_flexible = is_served and version >= api.flexible
        has_tags = response_has_tags(header.api_key, is_flexible=is_flexible)
        exchange = self._new_exchange(header.api_key, correlation_id, overlaps=api.overlaps, has_tags=has_tags)
        exchange.memory, self._memory = self._memory, None
        self.pipeline.begin(exchange)
        if not is_served:
            self._answer(exchange, unsupported_version())
            return
        token = begin_request(exchange)
        try:
            self._work(api, exchange, header, frame, is_flexible=is_flexible)
        finally:
            end_request(token)

    def _new_exchange(self, api_key: int, correlation_id: int, *, overlaps: bool, has_tags: bool) -> BegunRequest:
        times = self._served.times.of[api_key]
        return BegunRequest(
            correlation_id, times, self._received_ns, overlaps=overlaps, has_tags=has_tags, callers=self._callers
        )

    def _work(
        self, api: Api, exchange: BegunRequest, header: RequestHeader, frame: bytearray, *, is_flexible: bool
    ) -> None:
        """Begin the work on a request. Its lines in the log, and those of its task, have its id."""
        session = self._session
        answer: Body | Awaitable[Body | None] | None
        if session is not None and session.takes(header.api_key):
            answer = session.begin(bytes(frame), self.drain)
        else:
            reader = Reader(memoryview(frame), header.end)
            if is_flexible:
                reader.skip_tagged_fields()
            caller = self._callers.caller_of(header, has_token=session is not None and session.has_token)
            answer = self._call(api, exchange, Request(caller, exchange.correlation_id, reader))
        self._take_answer(exchange, answer)

    def _take_answer(self, exchange: BegunRequest, answer: Body | Awaitable[Body | None] | None) -> None:
        exchange.local_ns = perf_counter_ns() - exchange.begun_ns
        if answer is None or isinstance(answer, (list, tuple)):
            self._answer(exchange, answer)
        elif isinstance(answer, Pending):
            exchange.work = answer
            answer.then(partial(self.settle, exchange))
        else:
            assert isinstance(answer, Awaitable), type(answer)
            self._await(exchange, answer)

    def _call(self, api: Api, exchange: BegunRequest, request: Request) -> Body | Awaitable[Body | None] | None:
        """Call the API, and count what the request uses if any client has a quota."""
        quotas, caller = self._served.node.context.quotas, request.caller
        if not quotas.is_enabled or is_of_nodes(self._served.node, api.key, caller):
            return api.begin(self._served.node, request)
        usage = exchange.usage = RequestUsage(quotas, caller.principal.name, caller.client.client_id)
        usage.enter()
        answer = api.begin(self._served.node, request._replace(usage=usage))
        usage.leave()
        self._delay(usage)
        return answer

    def _await(self, exchange: BegunRequest, answer: Awaitable[Body | None]) -> None:
        if inspect.iscoroutine(answer):
            if exchange.usage is not None:
                answer = MeasuredSteps(answer, exchange.usage)
            answer = MeasuredSteps(answer, exchange)
            work: asyncio.Future[Body | None] = self.loop.create_task(answer, name="kafka-request")
        else:
            work = asyncio.ensure_future(answer)
        exchange.work = work
        work.add_done_callback(partial(self._answered, exchange))

    def _answered(self, exchange: BegunRequest, work: asyncio.Future[Body | None]) -> None:
        is_cancelled = work.cancelled()
        self._take_outcome(exchange, work, None if is_cancelled else work.exception(), is_cancelled=is_cancelled)
        self._schedule()

    def _take_outcome(
        self,
        exchange: BegunRequest,
        work: asyncio.Future[Body | None] | Pending[Body | None],
        error: BaseException | None,
        *,
        is_cancelled: bool,
    ) -> None:
        exchange.release()
        if isinstance(error, (MalformedMessageError, CloseConnection)):
            self._fail(str(error))
        elif error is not None:
            self._fail_unexpectedly(error)
        elif is_cancelled and not self._is_closed:
            self._fail(f"request {exchange.correlation_id} was cancelled")
        elif not self._is_closed:
            self._answer(exchange, work.result())

    def _delay(self, usage: RequestUsage) -> None:
        """Receive no more requests until the client's delay has passed."""
        if usage.muted_until_ms > self._muted_until_ms:
            self._muted_until_ms = usage.muted_until_ms
            if self._mute is not None:
                self._mute.cancel()
            self._mute = self.loop.call_later(usage.delay_ms / 1000, self._end_delay)

    def _end_delay(self) -> None:
        self._mute = None
        self._schedule()

    def _answer(self, exchange: BegunRequest, body: Body | None) -> None:
        exchange.release()
        if exchange.usage is not None:
            exchange.usage.end()
            self._delay(exchange.usage)
        exchange.answered_ns = perf_counter_ns()
        self.pipeline.answer(exchange, body)
        self._outbox.count(exchange.size)
        if exchange.size >= _LARGE_BYTES:
            # Flush at once, to learn before the next request begins whether the client takes the response.
            self._flush()

    def _schedule(self) -> None:
        """Continue in the loop's next iteration, once for all answers of the current one."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        if not self._is_closed:
            self._flush()
            self._pump()

    def _flush(self) -> None:
        if not self._outbox.is_paused:
            answered = self.pipeline.take_answered()
            if answered:
                self._timeouts.has_answered(self.loop.time())
                self._unsent += cast(list[BegunRequest], answered)
                self._outbox.send(answered)
                if self._unsent and not self._outbox.is_paused:
                    self._count_sent()

    def _count_sent(self) -> None:
        now_ns, sent = perf_counter_ns(), self._unsent
        self._unsent = []
        for exchange in sent:
            exchange.end(now_ns)

    def _set_reading(self, is_reading: bool) -> None:
        if is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _fail(self, reason: str, level: int = logging.WARNING) -> None:
        if not self._is_closed:
            text = "Connection %s of listener %s is closed: %s"
            self._served.log.log(level, text, self.host, self.listener, reason)
            self._flush()
            self.abort()

    def _fail_unexpectedly(self, error: BaseException) -> None:
        text = "A request from %s to listener %s failed with an unexpected error"
        self._served.failures.log(logging.ERROR, text, self.host, self.listener, error=error)
        if not self._is_closed:
            self._flush()
            self.abort()
