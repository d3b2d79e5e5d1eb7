# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled twin of :mod:`tidelog.producer.core._pure_columns`: the same functions without a
Python object per row.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from tidelog.producer.core._hashes cimport hash_key
from tidelog_foundation.records._bytes cimport tidelog_copy
from tidelog_foundation.records._fast_encoder cimport NULL_CONTENT, Source, content_of

from array import array

from tidelog_foundation.records.columns import BinaryColumn


def largest(values, keys):
    """Return the size of the largest record's key and value, and its row; see the twin."""
    cdef Source value_source = Source(values, "value")
    cdef Source key_source = None if keys is None else Source(keys, "key")
    cdef const char* content = NULL
    cdef Py_ssize_t row, size, own, most = 0, at = -1
    if key_source is not None and key_source.rows < value_source.rows:
        raise ValueError(f"{key_source.rows} keys for {value_source.rows} values")
    for row in range(value_source.rows):
        size = content_of(&value_source.view, row, &content)
        if size < NULL_CONTENT:
            raise value_source.fault(row, size)
        own = max(size, 0)
        if key_source is not None:
            size = content_of(&key_source.view, row, &content)
            if size < NULL_CONTENT:
                raise key_source.fault(row, size)
            own += max(size, 0)
        if at < 0 or own > most:
            most, at = own, row
    return most, at


def choose_partitions(keys, int key_hash, int64_t keyless_hash, bint empty_sticks, Py_ssize_t count, int32_t[::1] chosen):
    """Put the partition of each key into ``chosen`` where it is -1; see the twin."""
    cdef Source source = Source(keys, "key")
    cdef const char* content = NULL
    cdef Py_ssize_t row, size
    if not 0 < count < 2**31:
        raise ValueError(f"{count} partitions")
    for row in range(min(source.rows, chosen.shape[0])):
        if chosen[row] != -1:
            continue
        size = content_of(&source.view, row, &content)
        if size < NULL_CONTENT:
            raise source.fault(row, size)
        if size == NULL_CONTENT:
            if keyless_hash >= 0:
                chosen[row] = keyless_hash % count
        elif size > 0 or not empty_sticks:
            chosen[row] = hash_key(key_hash, <const uint8_t*>content, size) % <uint32_t>count


def group(const int32_t[::1] chosen, Py_ssize_t count):
    """Return the rows sorted by partition, and the start of each group; see the twin."""
    cdef Py_ssize_t row, total = chosen.shape[0], group_index, place = 0
    cdef object sorted_rows = array("q", bytes(8 * total))
    cdef object next_places = array("q", bytes(8 * (count + 2)))
    cdef int64_t[::1] rows = sorted_rows
    cdef int64_t[::1] places = next_places
    for row in range(total):
        if not -1 <= chosen[row] < count:
            raise ValueError(f"row {row}: partition {chosen[row]} of {count}")
        places[chosen[row] + 2] += 1
    for group_index in range(1, count + 2):
        places[group_index] += places[group_index - 1]
    starts = list(next_places)
    for row in range(total):
        group_index = chosen[row] + 1
        rows[places[group_index]] = row
        places[group_index] += 1
    return sorted_rows, starts


def gather(contents, const int64_t[::1] rows, Py_ssize_t start, Py_ssize_t end, Py_ssize_t max_bytes, str name):
    """Return the contents of ``rows[start:end]`` as one column; see the twin."""
    cdef Source source = Source(contents, name)
    cdef const char* content = NULL
    cdef Py_ssize_t index, size, total = 0, count = end - start
    cdef object store, valid_store = PyBytes_FromStringAndSize(NULL, (count + 7) // 8)
    cdef object offset_store = PyBytes_FromStringAndSize(NULL, 8 * (count + 1))
    cdef uint8_t* valid = <uint8_t*>PyBytes_AS_STRING(valid_store)
    cdef int64_t* offsets = <int64_t*>PyBytes_AS_STRING(offset_store)
    cdef uint8_t* target
    if not (0 <= start <= end <= rows.shape[0]):
        raise ValueError(f"rows {start} to {end} of {rows.shape[0]}")
    memset(valid, 0, (count + 7) // 8)
    offsets[0] = 0
    for index in range(count):
        if not 0 <= rows[start + index] < source.rows:
            raise ValueError(f"row {rows[start + index]} of {source.rows}")
        size = content_of(&source.view, rows[start + index], &content)
        if size < NULL_CONTENT:
            raise source.fault(rows[start + index], size)
        if index and total + max(size, 0) > max_bytes:
            count = index
            break
        if size >= 0:
            valid[index >> 3] |= 1 << (index & 7)
            total += size
        offsets[index + 1] = total
    store = PyBytes_FromStringAndSize(NULL, total)
    target = <uint8_t*>PyBytes_AS_STRING(store)
    for index in range(count):
        size = content_of(&source.view, rows[start + index], &content)
        if size > 0:
            tidelog_copy(target + offsets[index], <const uint8_t*>content, offsets[index + 1] - offsets[index])
    places = memoryview(offset_store)[: 8 * (count + 1)].cast("q")
    return BinaryColumn(count, memoryview(valid_store), 0, places, 0, memoryview(store))


def fill(int64_t[::1] offsets, rows, Py_ssize_t first, Py_ssize_t count, int64_t base):
    """Put base, base + 1 ... at the rows; see the twin."""
    cdef const int64_t[::1] picked
    cdef Py_ssize_t index, row
    if rows is None:
        if not (0 <= first and first + count <= offsets.shape[0]):
            raise IndexError(f"rows {first} to {first + count} of {offsets.shape[0]}")
        for index in range(count):
            offsets[first + index] = base + index
        return
    picked = rows
    if not (0 <= first and first + count <= picked.shape[0]):
        raise IndexError(f"rows {first} to {first + count} of {picked.shape[0]}")
    for index in range(count):
        row = picked[first + index]
        if not 0 <= row < offsets.shape[0]:
            raise IndexError(f"row {row} of {offsets.shape[0]}")
        offsets[row] = base + index


def pick(const int64_t[::1] numbers, const int64_t[::1] rows, Py_ssize_t start, Py_ssize_t end):
    """Return the numbers at ``rows[start:end]``; see the twin."""
    cdef object store = array("q", bytes(8 * (end - start)))
    cdef int64_t[::1] picked = store
    cdef Py_ssize_t index
    if not 0 <= start <= end <= rows.shape[0]:
        raise IndexError(f"rows {start} to {end} of {rows.shape[0]}")
    for index in range(end - start):
        if not 0 <= rows[start + index] < numbers.shape[0]:
            raise IndexError(f"row {rows[start + index]} of {numbers.shape[0]}")
        picked[index] = numbers[rows[start + index]]
    return memoryview(store)


def stamp(int32_t[::1] chosen, rows, Py_ssize_t first, Py_ssize_t count, int32_t partition):
    """Put the partition at the rows; see the twin."""
    cdef const int64_t[::1] picked
    cdef Py_ssize_t index, row, end = chosen.shape[0]
    if rows is not None:
        picked = rows
        end = picked.shape[0]
    if not (0 <= first and first + count <= end):
        raise IndexError(f"rows {first} to {first + count} of {end}")
    for index in range(first, first + count):
        row = index if rows is None else picked[index]
        if not 0 <= row < chosen.shape[0]:
            raise IndexError(f"row {row} of {chosen.shape[0]}")
        chosen[row] = partition
