"""The surroundings of one process: its clock and version, the limits of the operating system, its file systems."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.requests.features import FeatureDescription
from tidelog_foundation.requests.request import Request

OPEN_FILES: Final = "open_files"
"""The files and connections that the process has open; the soft limit RLIMIT_NOFILE."""
THREADS: Final = "threads"
"""The threads of the process; the lower of RLIMIT_NPROC and the limit of its control group."""
MEMORY_MAPS: Final = "memory_maps"
"""The mapped regions of memory; ``vm.max_map_count``. A node maps two index files per segment in use."""
UNLIMITED: Final = -1
"""A limit that does not exist, or a number that the system does not tell."""


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """A resource of the operating system: the number in use and the limit, each ``UNLIMITED`` if unknown."""

    resource: str
    used: int = UNLIMITED
    limit: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """The file system below a directory of the process. Numbers are -1 if the file system does not tell them.

    ``error`` is empty, or the reason why the file system did not answer. ``usable`` is what the process may still use.
    """

    path: str
    is_read_only: bool = False
    total_bytes: int = -1
    usable_bytes: int = -1
    total_files: int = -1
    usable_files: int = -1
    error: str = ""


@dataclass(frozen=True, slots=True)
class DescribeProcessResponse:
    """The process that answers. ``time_ms`` is its wall clock, in milliseconds since 1970.

    ``features`` are the levels that this process alone supports, with the levels that it has applied.
    """

    time_ms: int
    software_version: str
    features: tuple[FeatureDescription, ...] = ()
    resources: tuple[ResourceUse, ...] = ()
    directories: tuple[DirectoryState, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeProcessRequest(Request[DescribeProcessResponse]):
    """A request for the surroundings of the process that is called."""
