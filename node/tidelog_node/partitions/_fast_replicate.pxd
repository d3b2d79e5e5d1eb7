"""The compiled way of a follower's answers for other compiled modules."""

from libc.stdint cimport int64_t


cpdef bint replicate(
    partition, int64_t leader_epoch, int64_t fetch_offset, records, int64_t high_watermark, int64_t log_start_offset
) except -1
