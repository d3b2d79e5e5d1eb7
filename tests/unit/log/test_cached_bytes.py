"""Bytes of a file that are in the system's memory, or are read into it."""

import os
import tempfile
from pathlib import Path

import pytest

from tidelog_node.log.disk import files as files_module
from tidelog_node.log.disk.files import OS_FILES
from tidelog_node.log.segments.batch_file import UncachedBytes

SIZE = 4 << 20


@pytest.fixture
def evicted():
    """Return the handle of a file on a disk whose bytes are not in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        handle = OS_FILES.open(Path(folder) / "file", create=True)
        try:
            OS_FILES.pwrite(handle, os.urandom(SIZE), 0)
            OS_FILES.fsync(handle)
            evict(handle)
            if OS_FILES.is_cached(handle, SIZE, 0):
                pytest.skip("the file system keeps the file in memory, or does not tell")
            yield handle
        finally:
            OS_FILES.close(handle)


def evict(handle):
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


def test_loaded_bytes_are_in_memory_and_those_far_behind_are_not(evicted):
    UncachedBytes(OS_FILES, evicted, 256 << 10, 1 << 20, 1 << 20).load()
    assert OS_FILES.is_cached(evicted, 256 << 10, 1 << 20)
    assert not OS_FILES.is_cached(evicted, 512 << 10, 3 << 20)
    assert not OS_FILES.is_cached(evicted, SIZE, 0)


def test_written_bytes_are_in_memory(evicted):
    OS_FILES.pwrite(evicted, bytes(1 << 20), 0)
    assert OS_FILES.is_cached(evicted, 1 << 20, 0)


def test_bytes_behind_the_end_are_taken_for_cached(evicted):
    assert OS_FILES.is_cached(evicted, 1 << 20, SIZE)
    UncachedBytes(OS_FILES, evicted, 1 << 20, SIZE, 0).load()


def test_a_system_that_does_not_tell_is_taken_to_have_all_in_memory(evicted, monkeypatch):
    monkeypatch.setattr(files_module, "_NO_WAIT", None)
    assert OS_FILES.is_cached(evicted, SIZE, 0)


def test_closed_files_are_taken_for_cached_and_are_not_loaded():
    assert OS_FILES.is_cached(-1, SIZE, 0)
    UncachedBytes(OS_FILES, -1, SIZE, 0, 0).load()
    with pytest.raises(OSError, match="Bad file descriptor"):
        OS_FILES.read_ahead(-1, SIZE, 0)
