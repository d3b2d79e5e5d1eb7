"""The file system that tests break: what it must not do, so that a test says what it means to say."""

from __future__ import annotations

import os

import pytest
from small_disk import SmallDisk


def test_disk_that_is_in_use_is_not_taken_for_unmounted(disk: SmallDisk) -> None:
    """Detached, it would live on: a disk that was made read-only would be so still when it is mounted again."""
    (disk.path / "held").write_bytes(b"")
    with (disk.path / "held").open("rb"):
        disk.make_read_only()
        with pytest.raises(RuntimeError, match=rf"process {os.getpid()} .*held"):
            disk.unmount(timeout_s=0.2)
    disk.unmount()
    disk.mount()
    (disk.path / "written").write_bytes(b"again")
