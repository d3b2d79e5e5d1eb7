"""The ends of local processes that the runner stops."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tidelog_chaos.drivers import Member
from tidelog_chaos.drivers.local import LocalDriver

NODE = Member("node", 1)


class Ended:
    """A node's process that ends with a code when it is told to stop."""

    name = "node 1"

    def __init__(self, code: int) -> None:
        self._code = code

    def terminate(self) -> None:
        pass

    def wait_or_kill(self, timeout_s: float) -> int:
        return self._code

    def stop(self, timeout_s: float) -> int:
        return self._code

    def log_tail(self) -> str:
        return "its last lines"


def driver_of(process: Ended, directory: Path, monkeypatch: pytest.MonkeyPatch) -> LocalDriver:
    monkeypatch.setattr(LocalDriver, "_process", lambda driver, member: process)
    monkeypatch.setattr(LocalDriver, "_processes", lambda driver: [process])
    return LocalDriver(directory, 1, 1, {}, ())


@pytest.mark.parametrize("code", [0, -signal.SIGTERM])
def test_stop_is_clean_also_before_the_process_can_handle_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    driver = driver_of(Ended(code), tmp_path, monkeypatch)
    driver.stop(NODE)
    assert driver.stop_nodes()


@pytest.mark.parametrize("code", [1, -signal.SIGKILL])
def test_stop_that_ends_otherwise_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    driver = driver_of(Ended(code), tmp_path, monkeypatch)
    with pytest.raises(RuntimeError, match=rf"node 1 ended with {code} .* its last lines"):
        driver.stop(NODE)
    assert not driver.stop_nodes()
