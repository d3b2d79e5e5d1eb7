"""The C library's retention of freed memory, sized for the buffers of a few fetches.

Fetches, responses and appends use buffers of about a megabyte, with several copies of each. By default the GNU library
maps each of them anew and unmaps it at once, and the kernel clears its pages each time. That takes several times as
long as the copy itself, on both sides of a follower that catches up.
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From malloc.h of the GNU C library."""
_LARGEST_KEPT = 16 * 1024 * 1024
"""Above the size of a response to a follower's fetch (replica.fetch.response.max.bytes).

Larger blocks are mapped separately.
"""
_MOST_KEPT = 16 * 1024 * 1024
"""The maximum free memory at the end of a heap."""
_CHOSEN_BY_OPERATOR = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


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
