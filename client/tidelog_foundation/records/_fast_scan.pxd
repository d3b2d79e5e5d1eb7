"""The check of a batch's CRC-32C that the compiled modules share."""

from libc.stdint cimport uint8_t

from tidelog_foundation.records._header cimport Header


cdef bint is_unchanged(const uint8_t* place, const Header* header) except -1
