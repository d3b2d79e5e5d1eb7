"""The file system that tests break: what it must not do, so that a test says what it means to say."""

from __future__ import annotations

import os
import subprocess

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


def test_disk_that_another_mount_namespace_saw_is_mounted_writable(disk: SmallDisk) -> None:
    """A namespace of another test, such as one of ``ip netns exec``, does not keep the file system and its state."""
    other = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "slave", "sh", "-c", "echo ready; cat > /dev/null"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        disk.make_read_only()
        disk.unmount()
        disk.mount()
        (disk.path / "written").write_bytes(b"again")
        other.communicate()
