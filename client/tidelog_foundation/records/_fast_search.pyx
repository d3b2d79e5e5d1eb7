# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Searches in the records of a batch without objects per record; part of the twin of
:mod:`tidelog_foundation.records._pure`.

Each walk releases the GIL, and checks all records regardless of what it finds.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t

from tidelog_foundation.records._fast_walk cimport Block, Walk


def summarize_records(data, header):
    """Return (has a null key, least timestamp, greatest timestamp), without timestamps of -1 (-1 if there is none)."""
    cdef Walk walk = Walk(data, header)
    cdef Py_ssize_t rows, row
    cdef int64_t least = -1, greatest = -1, timestamp
    cdef bint has_keyless = False
    cdef Block block
    with nogil:
        rows = walk.next_block(&block)
        while rows:
            for row in range(rows):
                has_keyless |= block.key_sizes[row] < 0
                timestamp = walk.timestamp(block.timestamp_deltas[row])
                if timestamp == -1:
                    continue
                if least == -1 or timestamp < least:
                    least = timestamp
                if greatest == -1 or timestamp > greatest:
                    greatest = timestamp
            rows = walk.next_block(&block)
    return has_keyless, least, greatest


def find_keyless(data, header, Py_ssize_t limit):
    """Return the indexes of the first records without a key, at most ``limit``."""
    cdef Walk walk = Walk(data, header)
    cdef Py_ssize_t rows, row, first, more = limit
    cdef list found = []
    cdef Block block
    with nogil:
        rows = walk.next_block(&block)
        while rows:
            first = walk.index - rows
            for row in range(rows):
                if block.key_sizes[row] < 0 and more > 0:
                    with gil:
                        found.append(first + row)
                        more -= 1
            rows = walk.next_block(&block)
    return found


def find_outside(data, header, earliest, latest, Py_ssize_t limit):
    """Return (index, timestamp) of the first records with a timestamp outside the range, at most ``limit``."""
    cdef Walk walk = Walk(data, header)
    cdef Py_ssize_t rows, row, first, more = limit
    cdef int64_t least = _int64(earliest), greatest = _int64(latest), timestamp
    cdef list found = []
    cdef Block block
    with nogil:
        rows = walk.next_block(&block)
        while rows:
            first = walk.index - rows
            for row in range(rows):
                timestamp = walk.timestamp(block.timestamp_deltas[row])
                if more > 0 and (timestamp > greatest or (timestamp != -1 and timestamp < least)):
                    with gil:
                        found.append((first + row, timestamp))
                        more -= 1
            rows = walk.next_block(&block)
    return found


def find_timestamp(data, header, timestamp_ms, min_offset):
    """Return (offset, timestamp) of the first record at or after a timestamp and an offset, or None."""
    cdef Walk walk = Walk(data, header)
    cdef Py_ssize_t rows, row
    cdef int64_t wanted = _int64(timestamp_ms), least_offset = _int64(min_offset), offset = -1, timestamp = -1
    cdef bint is_found = False
    cdef Block block
    with nogil:
        rows = walk.next_block(&block)
        while rows:
            for row in range(0 if is_found else rows):
                offset = walk.base_offset + block.offset_deltas[row]
                timestamp = walk.timestamp(block.timestamp_deltas[row])
                if timestamp >= wanted and offset >= least_offset:
                    is_found = True
                    break
            rows = walk.next_block(&block)
    return (offset, timestamp) if is_found else None


def find_greatest(data, header, min_offset):
    """Return (offset, timestamp) of the first record with the greatest timestamp at or after an offset."""
    cdef Walk walk = Walk(data, header)
    cdef Py_ssize_t rows, row
    cdef int64_t least_offset = _int64(min_offset), greatest = -1, place = -1, timestamp, offset
    cdef Block block
    with nogil:
        rows = walk.next_block(&block)
        while rows:
            for row in range(rows):
                timestamp = walk.timestamp(block.timestamp_deltas[row])
                offset = walk.base_offset + block.offset_deltas[row]
                if timestamp > greatest and offset >= least_offset:
                    greatest, place = timestamp, offset
            rows = walk.next_block(&block)
    return None if greatest == -1 else (place, greatest)


cdef int64_t _int64(number):
    """Return the number, clamped to int64."""
    return max(INT64_MIN, min(number, INT64_MAX))
