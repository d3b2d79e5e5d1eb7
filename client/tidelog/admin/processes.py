"""The surroundings of single processes: clock, version, limits of the operating system, file systems."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tidelog.admin.operations import Future, Operations
from tidelog.v1 import admin_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests import processes

_CLOCK_READINGS: Final = 3
"""Calls per description; the fastest tells the clock, since the first one may include the connection."""
_RESOLUTION_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class FeatureLevels:
    """The levels of a feature that one process supports, both bounds included, and the level that it has applied."""

    min_level: int
    max_level: int
    applied_level: int


@dataclass(frozen=True, slots=True)
class ResourceUse(processes.ResourceUse):
    """A resource of the operating system: the number in use and the limit, -1 for no limit or an unknown number."""


@dataclass(frozen=True, slots=True)
class DirectoryState(processes.DirectoryState):
    """The file system below a directory of a process."""


@dataclass(frozen=True, slots=True)
class ProcessDescription:
    """A node or a controller. The clock is at most ``clock_error_s`` away from ``clock_offset_s``.

    ``clock_offset_s`` is the difference to this machine's clock, positive if the process is ahead. Its error is half
    the round trip of the call (Cristian, 1989).
    """

    software_version: str
    clock_offset_s: float
    clock_error_s: float
    features: dict[str, FeatureLevels]
    resources: tuple[ResourceUse, ...]
    directories: tuple[DirectoryState, ...]


class ProcessAdmin(Operations):
    """Descriptions of single processes."""

    def describe_process(
        self, process_id: int, *, is_controller: bool = False, request_timeout: float | None = None
    ) -> Future[ProcessDescription]:
        """Describe a node, or a controller with ``is_controller``.

        The future fails with KafkaException: BROKER_NOT_AVAILABLE or VOTER_NOT_FOUND if there is no such process,
        UNSUPPORTED_VERSION if it is of a version without this call, CLUSTER_AUTHORIZATION_FAILED.
        """

        async def ask_node() -> ProcessDescription:
            timeout_ms = self._request_ms(request_timeout)
            connection = await self._node(process_id, timeout_ms, ErrorCode.BROKER_NOT_AVAILABLE)
            request = pb.DescribeProcessRequest()
            return await _describe(
                lambda: connection.call(lambda c: c.admin.DescribeProcess(request, timeout=timeout_ms / 1000))
            )

        async def ask_controller() -> ProcessDescription:
            timeout_s = self._request_ms(request_timeout) / 1000
            request = pb.DescribeProcessRequest()
            return await self._quorum.ask_admin(
                process_id, lambda stub, t: _describe(lambda: stub.DescribeProcess(request, timeout=t)), timeout_s
            )

        return self._future(ask_controller() if is_controller else ask_node())


async def _describe(ask: Callable[[], Awaitable[pb.DescribeProcessResponse]]) -> ProcessDescription:
    """Return the description by the fastest of a few calls."""
    readings = []
    for _ in range(_CLOCK_READINGS):
        sent_s, started_s = time.time(), time.monotonic()
        response = await ask()
        round_trip_s = time.monotonic() - started_s
        readings.append((round_trip_s, response.time_ms / 1000 - sent_s - round_trip_s / 2, response))
    round_trip_s, offset_s, response = min(readings, key=lambda reading: reading[0])
    return ProcessDescription(
        response.software_version,
        offset_s,
        round_trip_s / 2 + _RESOLUTION_S,
        {f.name: FeatureLevels(f.min_level, f.max_level, f.finalized_level) for f in response.features},
        tuple(ResourceUse(r.resource, r.used, r.limit) for r in response.resources),
        tuple(
            DirectoryState(
                d.path, d.is_read_only, d.total_bytes, d.usable_bytes, d.total_files, d.usable_files, d.error
            )
            for d in response.directories
        ),
    )
