"""Faults on demand: calls that fail with a chosen error, and a node that stops answering."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import MethodDescriptor

from tidelog.v1 import admin_service_pb2, group_service_pb2, log_service_pb2
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport import call_soon
from tidelog_testing.refusals import has_errors

_SERVICES: Final = (
    log_service_pb2.DESCRIPTOR.services_by_name["LogService"],
    admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"],
    group_service_pb2.DESCRIPTOR.services_by_name["GroupService"],
)
METHODS: Final[dict[str, MethodDescriptor]] = {
    f"/{service.full_name}/{method.name}": method for service in _SERVICES for method in service.methods
}
"""The methods of a node by their paths."""
PRODUCE: Final = "Produce"
PRODUCE_STREAM: Final = "ProduceStream"
_APIS: Final = {method.name: method for method in METHODS.values() if method.name != PRODUCE_STREAM}


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure of one call.

    ``ends_call``: the call ends with a gRPC status; otherwise each item of the response carries the error.
    ``applied``: the request takes effect first, and only its answer is lost.
    """

    code: ErrorCode
    ends_call: bool
    applied: bool

    def error(self) -> TidelogError:
        """Return the exception."""
        return error_for(self.code, f"{self.code.text} (requested by fail_next)")


Script: TypeAlias = Callable[[Any], Any]
"""Function that returns the response to a request or raises TidelogError. It runs in a thread."""


class Gate:
    """Admission of gRPC calls: it waits while the node is paused, counts the call, and returns its fault.

    Calls are admitted on the network loop. The other methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_paused = False
        self._resumed = asyncio.Event()
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._calls: dict[str, int] = defaultdict(int)
        self._scripts: dict[str, Script] = {}

    def fail_next(self, api: str, code: ErrorCode, times: int, *, whole_call: bool, applied: bool) -> None:
        """Queue a fault for the next ``times`` calls of ``api``.

        Raises:
            ValueError: the API does not exist.
        """
        _check_api(api)
        # Codes below UNKNOWN_SERVER_ERROR are the client's own; no response carries them.
        is_local = code.code < ErrorCode.UNKNOWN_SERVER_ERROR.code
        fault = Fault(code, whole_call or is_local or not has_errors(_APIS[api].output_type), applied)
        with self._lock:
            self._faults[api].extend([fault] * times)

    def answer_with(self, api: str, script: Script) -> None:
        """Let ``script`` answer the calls of ``api``. Raise ValueError if the API does not exist."""
        _check_api(api)
        self._scripts[api] = script

    def script_of(self, api: str) -> Script | None:
        """Return the script that answers an API in place of the node, or None."""
        return self._scripts.get(api)

    def clear(self) -> None:
        """Remove the faults that no call has received yet."""
        with self._lock:
            self._faults.clear()

    def calls(self, api: str) -> int:
        """Return the number of admitted calls of ``api``."""
        with self._lock:
            return self._calls[api]

    def pause(self) -> None:
        """Delay every call from now on."""
        self._is_paused = True

    def resume(self) -> None:
        """Admit the delayed calls."""
        self._is_paused = False
        call_soon(self._wake)

    async def admit(self, api: str) -> Fault | None:
        """Wait while paused, count the call, and return its fault."""
        while self._is_paused:
            await self._resumed.wait()
        with self._lock:
            self._calls[api] += 1
            return self._faults[api].popleft() if self._faults[api] else None

    def _wake(self) -> None:
        self._resumed.set()
        self._resumed = asyncio.Event()


def _check_api(api: str) -> None:
    if api not in _APIS:
        raise ValueError(f"unknown API {api!r}; one of {', '.join(_APIS)}")
