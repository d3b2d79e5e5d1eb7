"""The memory allocator of a process that moves records.

Fetches, responses and appends use buffers of megabytes, with several copies of each. By default the GNU library returns
them to the kernel at once, which clears new pages for each of the next ones. That takes several times as long as the
copy itself.
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From malloc.h of the GNU C library."""
_LARGEST_KEPT = 16 * 1024 * 1024
"""Above the size of a response to a fetch. Larger blocks are mapped separately."""
_CHOSEN_BY_OPERATOR = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory(most_bytes: int) -> bool:
    """Make this process retain the freed memory of large buffers, and return whether that succeeded.

    ``most_bytes`` is the maximum free memory at the end of a heap. Return False if the library has no such setting or
    the environment sets it.
    """
    if any(name in os.environ for name in _CHOSEN_BY_OPERATOR):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # Setting only the first one would disable the library's own adaptation.
    return bool(mallopt(_M_TRIM_THRESHOLD, most_bytes)) and bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT))
