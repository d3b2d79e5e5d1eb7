# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled way of a follower's answers, from the records to the waiters.

:func:`replicate` does in one call what :meth:`Partition.replicate` does with an event and its commands. It leaves stale
answers, having changed nothing, to that method. So do all answers where this module is missing.
"""

from libc.stdint cimport int64_t

from tidelog_foundation.errors import TidelogError
from tidelog_node.replication.commands import AdvanceLogStart
from tidelog_node.replication.follower import FollowerState

cdef object _FOLLOWER = FollowerState


cpdef bint replicate(
    partition, int64_t leader_epoch, int64_t fetch_offset, records, int64_t high_watermark, int64_t log_start_offset
) except -1:
    """Apply an answer as :meth:`Partition.replicate` does, or return False, having changed nothing.

    Raises:
        TidelogError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR; nothing is appended.
    """
    role, log = partition.state.role, partition.log
    if type(role) is not _FOLLOWER or <int64_t>role.leader_epoch != leader_epoch:
        return False
    if <int64_t>log._local.log_end_offset != fetch_offset:
        return False
    try:
        if len(records):
            log.append_as_follower(records, partition.clock.wall_ms())
            partition.traffic.replicated_in += len(records)
            log_end = partition.waiters.log_end
            if log_end.waiting:
                log_end.wake()
                if partition.state.role is not role:
                    return True
        _advance(partition, role, log, high_watermark, log_start_offset)
    except TidelogError as error:
        partition.disk_watch.report(error)
        raise
    return True


cdef int _advance(partition, role, log, int64_t high_watermark, int64_t log_start_offset) except -1:
    """Pass the leader's offsets to the follower's state, and execute the commands; see ``record_replicated``."""
    cdef int64_t reached = min(high_watermark, <int64_t>log._local.log_end_offset)
    cdef int64_t before = role.high_watermark
    cdef int64_t deleted_below = min(log_start_offset, max(reached, before))
    cdef bint is_deleted = deleted_below > <int64_t>log._log_start_offset
    role.leader_high_watermark = high_watermark
    if reached > before:
        role.high_watermark = reached
        log.advance_high_watermark(reached)
        waiters = partition.waiters
        log_end, readers = waiters.log_end, waiters.high_watermark
        if log_end.waiting:
            log_end.mark()
        if readers.waiting:
            readers.wake()
    if is_deleted:
        partition.execute(AdvanceLogStart(deleted_below))
    return 0
