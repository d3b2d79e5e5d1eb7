"""The state of a process as the operating system tells it."""

from __future__ import annotations

import os
import resource
import time
from importlib import metadata
from pathlib import Path

import pytest

from tidelog_foundation.monitoring.process_state import describe_process, directory_state, resources
from tidelog_foundation.requests.processes import MEMORY_MAPS, OPEN_FILES, THREADS, UNLIMITED, ResourceUse


def test_process_is_described_with_its_clock_version_and_directories(tmp_path: Path) -> None:
    before_ms = int(time.time() * 1000)
    found = describe_process([tmp_path, tmp_path / "gone"])
    assert before_ms <= found.time_ms <= time.time() * 1000
    assert found.software_version == metadata.version("tidelog")
    here, gone = found.directories
    expected = os.statvfs(tmp_path)
    assert (here.path, here.is_read_only, here.error) == (str(tmp_path), False, "")
    assert here.total_bytes == expected.f_blocks * expected.f_frsize
    assert 0 < here.usable_bytes <= here.total_bytes
    assert (gone.total_bytes, gone.error) == (-1, "No such file or directory")


def test_read_only_file_system_is_seen() -> None:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    read_only = [mount[1] for mount in mounts if "ro" in mount[3].split(",") and os.access(mount[1], os.R_OK)]
    if not read_only:
        pytest.skip("this machine has no read-only file system")
    assert directory_state(Path(read_only[0])).is_read_only


def test_resources_in_use_and_their_limits_are_those_of_the_process() -> None:
    found = {each.resource: each for each in resources()}
    before = found[OPEN_FILES].used
    with open(os.devnull):
        assert resources()[0].used == before + 1
    assert found[OPEN_FILES].limit == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert found[THREADS].used >= 1
    assert found[MEMORY_MAPS].used > 10
    assert found[MEMORY_MAPS].limit == int(Path("/proc/sys/vm/max_map_count").read_text())


def test_limit_of_threads_is_the_lowest_of_the_control_groups(tmp_path: Path) -> None:
    own, groups = tmp_path / "proc" / "self", tmp_path / "cgroup"
    own.mkdir(parents=True)
    (own / "cgroup").write_text("0::/slice/unit\n")
    (groups / "slice" / "unit").mkdir(parents=True)
    (groups / "slice" / "pids.max").write_text("7\n")
    (groups / "slice" / "unit" / "pids.max").write_text("max\n")
    assert resources(tmp_path / "proc", groups)[1] == ResourceUse(THREADS, UNLIMITED, 7)


def test_numbers_are_unknown_on_systems_without_proc(tmp_path: Path) -> None:
    open_files, _, memory_maps = resources(tmp_path, tmp_path)
    assert (open_files.used, memory_maps.used, memory_maps.limit) == (UNLIMITED, UNLIMITED, UNLIMITED)
