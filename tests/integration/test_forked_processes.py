"""Forked processes of the tests' clusters, which must do all that freshly started ones do."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from acknowledged import wait_for
from forked_processes import ForkedProcess

from tidelog.testing.cluster_folder import FolderLocks
from tidelog.testing.ports import free_ports
from tidelog.testing.process import Place, ProcessGroup, ProcessHandle
from tidelog_chaos.skewed_clock import write_skew
from tidelog_foundation.errors import ConfigError
from tidelog_quorum.raft.storage.raft_storage import open_storage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
Make = Callable[..., ProcessHandle]
_CLUSTER = "forked"


@pytest.fixture
def group() -> Iterator[ProcessGroup]:
    group = ProcessGroup()
    yield group
    group.close()


@pytest.fixture(params=["forked", "fresh"])
def make(request: pytest.FixtureRequest, group: ProcessGroup, tmp_path: Path) -> Iterator[Make]:
    """Makes controllers of one voter, with further ``properties``."""
    if request.param == "fresh":
        request.getfixturevalue("fresh_processes")
    made: list[ProcessHandle] = []

    def start(
        properties: dict[str, object] | None = None,
        members: ProcessGroup = group,
        launcher: tuple[str, ...] = ("-m",),
    ) -> ProcessHandle:
        directory = tmp_path / f"controller-{len(made)}"
        [port] = free_ports(1)
        handle = ProcessHandle(1, "tidelog_quorum", Place(port=port, launcher=launcher), directory, members)
        own = {"node.id": 1, "cluster.id": _CLUSTER, "listeners": f"GRPC://{handle.address}"}
        places = {"controller.quorum.voters": f"1@{handle.address}", "metadata.log.dir": directory / "data"}
        handle.configure({**own, **places, **(properties or {})})
        made.append(handle)
        handle.start()
        return handle

    yield start
    for handle in made:
        handle.kill()


def test_start_is_forked_unless_a_test_asks_for_a_fresh_one(make: Make, request: pytest.FixtureRequest) -> None:
    process = make()._process
    assert isinstance(process, ForkedProcess) == ("forked]" in request.node.name)


def test_process_leads_its_own_module_in_the_group_and_folder_of_a_fresh_one(make: Make, group: ProcessGroup) -> None:
    handle = make()
    assert os.getpgid(handle.pid) == group.id
    assert os.readlink(f"/proc/{handle.pid}/cwd") == os.getcwd()


def test_process_writes_its_output_to_its_file_and_opens_nothing_of_its_parent(make: Make) -> None:
    handle = make()
    wait_for(handle.log_tail, "the process says something", 10)
    opened = {os.readlink(path) for path in Path(f"/proc/{handle.pid}/fd").iterdir()}
    assert str(handle.log_path) in opened
    assert "anon_inode:[pidfd]" not in opened


def test_exit_code_and_text_of_a_wrong_configuration_are_those_of_the_command(make: Make) -> None:
    handle = make({"node.id": "seven"})
    assert handle.wait(20) == 2
    assert "node.id" in handle.log_tail()
    assert "exit code 2" in (handle.failure or "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_death_by_a_signal_is_its_exit_code(make: Make, number: signal.Signals) -> None:
    handle = make()
    os.kill(handle.pid, number)
    assert handle.wait(20) == -number
    assert not handle.is_running


def test_clean_stop_ends_with_exit_code_zero(make: Make) -> None:
    handle = make()
    wait_for(handle.log_tail, "the process says something", 10)
    assert handle.stop() == 0


def test_paused_process_does_not_run_until_it_is_resumed(make: Make) -> None:
    handle = make()
    wait_for(handle.log_tail, "the process says something", 10)
    handle.pause()
    wait_for(lambda: _state(handle.pid) == "T", "the process is stopped", 10)
    handle.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        handle.wait(0.2)
    handle.resume()
    assert handle.wait(20) == 0


def test_process_id_belongs_to_an_ended_process_until_its_end_is_known(make: Make) -> None:
    handle = make()
    os.kill(handle.pid, signal.SIGKILL)
    wait_for(lambda: _state(handle.pid) == "Z", "the process has ended", 10)
    wait_for(lambda: not handle.is_running, "the end to be known", 10)
    wait_for(lambda: not Path(f"/proc/{handle.pid}").exists(), "the process is reaped", 10)


def test_process_ends_with_its_group(make: Make, tmp_path: Path) -> None:
    group = ProcessGroup()
    handle = make(members=group)
    group.close()
    assert handle.wait(20) == -signal.SIGKILL


def test_ignored_interrupt_stays_ignored(make: Make) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        handle = make()
    finally:
        signal.signal(signal.SIGINT, before)
    wait_for(handle.log_tail, "the process says something", 10)
    os.kill(handle.pid, signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        handle.wait(0.3)


def test_folder_is_in_use_while_a_process_of_its_cluster_lives(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.testing.cluster_folder._MEMBERS_TIMEOUT_S", 0.2)
    locks = FolderLocks.take(tmp_path)
    group = ProcessGroup([locks.members_fd])
    handle = make(members=group)
    locks.release()
    with pytest.raises(ConfigError, match="is in use by processes of an earlier local cluster"):
        FolderLocks.take(tmp_path)
    handle.kill()
    FolderLocks.take(tmp_path).release()
    group.close()


def test_limit_of_the_owner_holds_for_the_process(make: Make) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        handle = make()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(handle.pid, resource.RLIMIT_NOFILE) == (soft - 1, hard)


def test_variable_of_the_environment_reaches_the_process(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_TESTS_OWN", "x")
    variables = Path(f"/proc/{make().pid}/environ")
    wait_for(lambda: b"TIDELOG_TESTS_OWN=x" in variables.read_bytes().split(b"\0"), "the variable is there", 10)


def test_process_has_the_clock_of_its_launcher(make: Make, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    clock, ten_years_ms = tmp_path / "clock", 3_652 * 86_400_000
    write_skew(clock, ten_years_ms)
    handle = make(launcher=("-m", "tidelog_chaos.skewed_clock", str(clock)))
    assert isinstance(handle._process, ForkedProcess) == ("forked]" in request.node.name)
    year = datetime.fromtimestamp(time.time() + ten_years_ms / 1000).year
    wait_for(lambda: f"{year}-" in handle.log_tail(), "a line of the log with the time of the clock", 20)


def test_processes_draw_different_random_numbers(make: Make) -> None:
    ids = []
    for process in (make(), make()):
        wait_for(process.log_tail, "the process says something", 10)
        process.kill()
        storage, stored = open_storage(process.directory / "data", _CLUSTER, 1)
        storage.close()
        ids.append(stored.directory_id)
    assert ids[0] != ids[1]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
