# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled twin of :mod:`tidelog.producer._pure_calls`: an ordinary record enters its batch
without a Python call.
"""

from cpython.bytes cimport PyBytes_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from tidelog.producer.core._fast_intake cimport Intake

from tidelog.producer._pure_calls import ProduceCalls as _Definition

cdef extern from "Python.h":
    bytes PyUnicode_AsUTF8String(object text)
    long PyLong_AsLongAndOverflow(object number, int* overflow) except? -1
    object PyObject_CallNoArgs(object function)

cdef inline int64_t _now_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000


cdef inline double _monotonic_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <double>now.tv_sec * 1e3 + <double>now.tv_nsec / 1e6


cdef class ProduceCalls:
    """The base of :class:`tidelog.Producer`."""

    cdef Intake intake
    cdef object acquire
    cdef object release
    cdef object lifetime
    cdef object default_report
    cdef bint is_plain

    def __cinit__(self, *args, **settings):
        self.is_plain = False

    def _attach(self, intake, lock, lifetime, on_delivery, is_plain):
        """Initialize the calls; ``is_plain`` means that no interceptor sees records."""
        self.intake = intake if isinstance(intake, Intake) else None
        self.acquire, self.release = lock.acquire, lock.release
        self.lifetime = lifetime
        self.default_report = on_delivery
        self.is_plain = is_plain and self.intake is not None

    def produce(
        self, topic, value=None, key=None, partition=-1, on_delivery=None, timestamp=0, headers=None, *, callback=None
    ):
        cdef object report, content, name
        cdef bint taken
        cdef double produced_ms
        cdef int overflow = 0
        cdef long place = PyLong_AsLongAndOverflow(partition, &overflow) if type(partition) is int else -2
        if on_delivery is None:
            on_delivery = callback
        # Check for the end here too: in a child of fork(), a thread that no longer exists may hold the lock.
        if (
            self.is_plain
            and headers is None
            and place >= -1
            and not overflow
            and timestamp == 0
            and self.lifetime.ended is None
        ):
            content, name = value, key
            if PyUnicode_CheckExact(content):
                content = PyUnicode_AsUTF8String(content)
            if PyUnicode_CheckExact(name):
                name = PyUnicode_AsUTF8String(name)
            report = self.default_report if on_delivery is None else on_delivery
            produced_ms = 0.0 if report is None else _monotonic_ms()
            PyObject_CallNoArgs(self.acquire)
            try:
                # Check under the lock: close() discards queued records, and nothing may be queued after that.
                taken = self.lifetime.ended is None and self.intake.put(
                    topic, place, name, content, _now_ms(), report, produced_ms
                )
            finally:
                PyObject_CallNoArgs(self.release)
            if taken:
                return
        self._take(topic, value, key, partition, on_delivery, timestamp, headers)


ProduceCalls.produce.__doc__ = _Definition.produce.__doc__
