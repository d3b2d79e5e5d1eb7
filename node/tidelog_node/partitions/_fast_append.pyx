# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled way of a leader's most frequent append, from the batch to the waiters.

:func:`append` does in one call what :meth:`Partition.append` does with an event and its commands. It returns None, having
changed nothing, for an append that takes the log's way of many steps, and for every one that is refused. So do all
appends where this module is missing.
"""

from libc.stdint cimport int64_t

from tidelog_node.log._fast_append cimport append_as_leader

from tidelog_foundation.errors import TidelogError
from tidelog_node.replication.commands import AdvanceHighWatermark
from tidelog_node.replication.isr import CommittedIsr
from tidelog_node.replication.leader import LeaderState

cdef object _LEADER = LeaderState
cdef object _ADVANCE = AdvanceHighWatermark
cdef object _COMMITTED = CommittedIsr


def append(partition, batch, bint needs_all_replicas):
    """Append a producer's batch as :meth:`Partition.append` does, or return None, having changed nothing.

    Raises:
        TidelogError: an error of the log; nothing is appended.
    """
    leader = partition.state.role
    if type(leader) is not _LEADER or leader.is_mirror:
        return None
    if needs_all_replicas and not _has_enough_replicas(leader):
        return None
    clock = partition.clock
    try:
        info = append_as_leader(partition.log, batch, leader.leader_epoch, clock.wall_ms())
    except TidelogError as error:
        partition.disk_watch.report(error)
        raise
    if info is None:
        return None
    _note_appended(partition, leader, (<int64_t>info[1]) + 1, clock)
    traffic = partition.traffic
    traffic.appends += 1
    traffic.bytes_in += info[4]
    traffic.messages_in += info[1] - info[0] + 1
    return info


cdef inline bint _has_enough_replicas(leader) except -1:
    isr = leader.isr
    if type(isr) is _COMMITTED and len(isr.members) >= <Py_ssize_t>leader.min_insync_replicas:
        return True
    return not leader.is_under_min_isr


cdef bint _holds_back(leader) except -1:
    """Return whether a follower in sync is known to end at the high watermark, so that a new batch cannot advance it."""
    cdef int64_t high_watermark = leader.high_watermark
    isr = leader.isr
    if type(isr) is not _COMMITTED:
        return False
    members = isr.members
    for replica_id, progress in leader.followers.items():
        if <int64_t>progress.log_end_offset <= high_watermark and replica_id in members:
            return True
    return False


cdef int _note_appended(partition, leader, end_offset, clock) except -1:
    """Pass the append to the leader's state and to the waiters; see ``Partition.note_appended``."""
    waiters = partition.waiters
    followers = leader.followers
    if followers and _holds_back(leader):
        for progress in followers.values():
            if progress.lease is not None:
                progress.end_lease()
        leader.log_end_offset = end_offset
    elif followers:
        for command in leader.record_append(end_offset, clock.monotonic_ms()):
            if type(command) is _ADVANCE:
                advance(partition, leader, command.offset)
            else:
                partition.execute(command)
    else:
        # The leader alone is the in-sync set: its log's end is the high watermark.
        leader.log_end_offset = end_offset
        leader.high_watermark = end_offset
        advance(partition, leader, end_offset)
    if waiters.deletions.waiting:
        waiters.complete_deletions(leader, partition.log.log_start_offset)
    log_end = waiters.log_end
    if log_end.waiting:
        log_end.wake()
    return 0


cdef int advance(partition, leader, high_watermark) except -1:
    """Execute the command AdvanceHighWatermark."""
    waiters = partition.waiters
    partition.log.advance_high_watermark(high_watermark)
    if waiters.producers.waiting:
        waiters.complete_producers(leader)
    log_end, readers = waiters.log_end, waiters.high_watermark
    if log_end.waiting:
        log_end.mark()
    if readers.waiting:
        readers.wake()
    return 0
