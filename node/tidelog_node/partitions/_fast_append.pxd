"""A leader's command for other compiled modules."""


cdef int advance(partition, leader, high_watermark) except -1
