"""The process's memory allocator and limit of open files, set for a node.

Fetches, responses and appends use buffers of about a megabyte, with several copies of each. By default the GNU library
maps each of them anew and unmaps it at once, and the kernel clears its pages each time. That takes several times as
long as the copy itself, on both sides of a follower that catches up.

A node needs several open files per segment and one per connection.
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource

logger = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From malloc.h of the GNU C library."""
_LARGEST_KEPT = 16 * 1024 * 1024
"""Above the size of a response to a follower's fetch (replica.fetch.response.max.bytes).

Larger blocks are mapped separately.
"""
_MOST_KEPT = 16 * 1024 * 1024
"""The maximum free memory at the end of a heap."""
_CHOSEN_BY_OPERATOR = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
_MIN_FILES = 16_384


def keep_freed_memory() -> bool:
    """Make this process retain the freed memory of large buffers, and return whether that succeeded.

    Return False if the library has no such setting or the environment sets it.
    """
    if any(name in os.environ for name in _CHOSEN_BY_OPERATOR):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # Setting only the first one would disable the library's own adaptation.
    return bool(mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)) and bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT))


def raise_open_files_limit() -> None:
    """Raise the soft limit to the hard one, and warn if that is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError) as error:
            logger.warning("The limit of open files stays at %d: %s", soft, error)
    if soft != resource.RLIM_INFINITY and soft < _MIN_FILES:
        logger.warning("No more than %d files can be open: raise the hard limit (ulimit -Hn) to %d", soft, _MIN_FILES)
