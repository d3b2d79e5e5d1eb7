"""Transport of a TidelogError over a failed gRPC call: status, text and trailing metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NoReturn

import grpc
import grpc.aio

from tidelog_foundation.errors import ErrorCode, KafkaError, RetriableError, TidelogError, error_for
from tidelog_foundation.transport.tls_failures import tls_reason

ERROR_CODE_KEY = "tidelog-error-code"
_MAX_TEXT_BYTES = 2_000
"""The longest text. Trailing metadata carries it, which gRPC limits to 8 KiB, with up to three bytes for one."""

_TOO_MANY_CALLS = "Concurrent RPC limit exceeded!"
"""gRPC's text; its status is also that of a message that is too large."""


class SessionEndedError(RetriableError):
    """The session of a call is unknown or has ended. The call succeeds after another login."""

    def __init__(self, error: KafkaError | str) -> None:
        super().__init__(error if isinstance(error, KafkaError) else KafkaError(ErrorCode.NETWORK_EXCEPTION, error))


_FROM_STATUS = {
    grpc.StatusCode.UNAVAILABLE: ErrorCode._TRANSPORT,
    grpc.StatusCode.CANCELLED: ErrorCode._TRANSPORT,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorCode.REQUEST_TIMED_OUT,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorCode.MESSAGE_TOO_LARGE,
    grpc.StatusCode.UNIMPLEMENTED: ErrorCode.UNSUPPORTED_VERSION,
}


async def abort_with(
    context: grpc.aio.ServicerContext[object, object],
    error: TidelogError,
    details: Iterable[tuple[str, str]] = (),
) -> NoReturn:
    """End a call with ``error``; ``details`` are further pairs of trailing metadata.

    A text too long for the peer is truncated.
    """
    metadata = ((ERROR_CODE_KEY, str(error.code.code)), *details)
    text = error.message.encode()[:_MAX_TEXT_BYTES].decode(errors="ignore")
    await context.abort(_status_of(error), text, metadata)
    raise AssertionError("abort never returns")


def released(rpc_error: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
    """Return the error without its traceback, for the cause of an error that may be kept.

    The traceback keeps the call, and the call keeps gRPC's channel: a closed channel would go on connecting.
    """
    return rpc_error.with_traceback(None)


def error_from_rpc(rpc_error: grpc.aio.AioRpcError) -> TidelogError:
    """Return the error of a failed call: the peer's own, or the transport's (retriable), _SSL if TLS failed.

    Raises:
        CancelledError: see :func:`raise_if_cancelled`.
    """
    raise_if_cancelled()
    text = rpc_error.details() or ""
    code = trailing_value(rpc_error, ERROR_CODE_KEY)
    if code is not None:
        return error_for(int(code), text)
    if text == _TOO_MANY_CALLS:
        return error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
    row = _FROM_STATUS.get(rpc_error.code(), ErrorCode.UNKNOWN_SERVER_ERROR)
    if row is ErrorCode._TRANSPORT and (reason := tls_reason(text)) is not None:
        return error_for(ErrorCode._SSL, reason)
    return error_for(row, f"{rpc_error.code().name}: {text}")


def _status_of(error: TidelogError) -> grpc.StatusCode:
    if isinstance(error, SessionEndedError):
        # Kafka closes the connection, and the code is that of a lost one; the status tells that a login helps.
        return grpc.StatusCode.UNAUTHENTICATED
    return grpc.StatusCode[error.code.grpc_status]


def raise_if_cancelled() -> None:
    """Raise CancelledError in a task that was cancelled while it waited for gRPC.

    gRPC hides a cancellation that coincides with the end of a call: its own task takes the CancelledError, and the
    waiter gets the call's status. A loop that continues after a failed call must call this function, or it never ends.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def closed_channel_error() -> TidelogError:
    """Return the error of a call that ended with CancelledError because its channel was closed.

    Raises:
        CancelledError: The current task itself was cancelled.
    """
    raise_if_cancelled()
    return error_for(ErrorCode._TRANSPORT, "the connection was closed")


def trailing_value(rpc_error: grpc.aio.AioRpcError, key: str) -> str | None:
    """Return one value of a failed call's trailing metadata, or None."""
    for name, value in rpc_error.trailing_metadata() or ():
        if name == key:
            return value if isinstance(value, str) else value.decode()
    return None
