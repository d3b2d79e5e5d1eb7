"""What the C library's allocator keeps of the memory that is freed: enough for the buffers of a few fetches.

Fetches, responses and appends come in buffers of about a megabyte, several copies of each. As the GNU library is set
up, each of them is mapped anew and given back at once, and the kernel clears its pages each time: that takes several
times as long as the copy itself, on both sides of a follower that catches up.
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From malloc.h of the GNU C library."""
_LARGEST_KEPT = 16 * 1024 * 1024
"""Above a response of a follower's fetch (replica.fetch.response.max.bytes); what is larger is mapped by itself."""
_MOST_KEPT = 16 * 1024 * 1024
"""So much free memory stays at the end of a heap."""
_CHOSEN_BY_OPERATOR = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Let this process keep what it frees of large buffers; False where the library has no such setting, or has been
    set by its environment.
    """
    if any(name in os.environ for name in _CHOSEN_BY_OPERATOR):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # The first one alone would end what the library adapts by itself.
    return bool(mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)) and bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT))
