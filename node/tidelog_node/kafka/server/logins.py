"""The parts that all authentications of a node's Kafka listeners share: mechanisms, threads, counts and log lines."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.sasl import Authenticated, AuthenticationFailed, Challenge, Deferred, SaslContext
from tidelog_foundation.sasl.login_counts import LoginCounts, Result
from tidelog_node.kafka.apis.api_versions import unsupported_version
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.headers import RequestHeader
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.served import Body, Caller, Request
from tidelog_node.kafka.server.authentication import Authentication, ListenerMechanism, Now, Session
from tidelog_node.kafka.server.connection import Served
from tidelog_node.shards.events import ClientIdentity

T = TypeVar("T")
_THREADS: Final = 4
_NANOSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ListenerSasl:
    """The SASL of one listener."""

    mechanisms: Mapping[str, ListenerMechanism]
    max_receive_size: int = 512 * 1024
    """sasl.server.max.receive.size: the limit of a request before the authentication, in bytes."""
    failure_delay_s: float = 0.1
    """connection.failed.authentication.delay.ms."""
    is_encrypted: bool = False


class Logins:
    """The authentications of a node, on its event loop."""

    def __init__(self, served: Served) -> None:
        self.counts = LoginCounts()
        self._received_bytes = 0
        self._served = served
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sasl")

    def begin(self, sasl: ListenerSasl, listener: str, host: str, previous: Session | None = None) -> Authentication:
        """Return a new exchange with a client at ``host``."""
        context = SaslContext(listener, host, sasl.is_encrypted)

        def answer_versions(header: RequestHeader, frame: bytes) -> bytes:
            return self._answer_versions(listener, host, header, frame)

        return Authentication(sasl.mechanisms, context, answer_versions, previous)

    def may_keep(self, more: int) -> bool:
        """Count bytes of incomplete requests, fewer if negative, and return whether all are within the limit."""
        self._received_bytes += more
        return more <= 0 or self._received_bytes <= self._served.limits.max_login_bytes

    async def run(self, deferred: Deferred) -> Challenge | Authenticated | AuthenticationFailed:
        """Run a step that may block in a thread, and return its outcome."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, _outcome_of, deferred.work)

    def succeeded(self, listener: str, mechanism: str, previous: Session | None) -> None:
        """Count a success."""
        self.counts.count(listener, mechanism, Result.SUCCESS, is_again=previous is not None)

    def failed(self, listener: str, host: str, mechanism: str, reason: str, previous: Session | None) -> None:
        """Count a failure and log its reason, which the client does not learn."""
        self.counts.count(listener, mechanism, Result.FAILURE, is_again=previous is not None)
        what = "authentication" if previous is None else f"re-authentication of {previous.principal}"
        text = "The %s of a client at %s to listener %s%s has failed: %s"
        self._served.log.warning(text, what, host, listener, f" with {mechanism}" if mechanism else "", reason)

    def failed_unexpectedly(self, listener: str, host: str, error: Exception) -> None:
        """Log an error of this node in an authentication."""
        text = "The authentication of a client at %s to listener %s failed with an unexpected error"
        self._served.failures.log(logging.ERROR, text, host, listener, error=error)

    def close(self) -> None:
        """End the threads after their current steps."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _answer_versions(self, listener: str, host: str, header: RequestHeader, frame: bytes) -> bytes:
        """Answer ApiVersions, the only API that a client needs before it is authenticated."""
        api = self._served.apis[ApiKey.API_VERSIONS]
        first, last = api.versions
        if not first <= header.version <= last:
            return _joined(unsupported_version())
        reader = Reader(memoryview(frame), header.end)
        if header.version >= api.flexible:
            reader.skip_tagged_fields()
        caller = Caller(listener, ClientIdentity(_client_id(header), "/" + host), header.version)
        answer = api.begin(self._served.node, Request(caller, header.correlation_id, reader))
        assert isinstance(answer, (list, tuple)), "ApiVersions is answered at once"
        return _joined(answer)


def now() -> Now:
    """Return the current time."""
    return Now(time.time_ns() // _NANOSECONDS, time.monotonic_ns() // _NANOSECONDS)


def _outcome_of(
    work: Callable[[], Challenge | Authenticated],
) -> Challenge | Authenticated | AuthenticationFailed:
    try:
        return work()
    except AuthenticationFailed as failure:
        return failure


def _client_id(header: RequestHeader) -> str:
    try:
        return (header.client_id or b"").decode()
    except UnicodeDecodeError as error:
        raise MalformedMessageError(f"the client id is not UTF-8: {error}") from error


def _joined(body: Body) -> bytes:
    return b"".join(map(bytes, body))
