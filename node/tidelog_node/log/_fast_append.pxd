"""The compiled appends for other compiled modules."""

from libc.stdint cimport int64_t


cpdef append_as_leader(log, batch, int64_t leader_epoch, int64_t now_ms)
