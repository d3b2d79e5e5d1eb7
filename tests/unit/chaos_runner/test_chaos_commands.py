"""The commands by which drivers change a network: done or undone as a whole, whatever comes in between."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tidelog_chaos import isolation
from tidelog_chaos.drivers import Cut, Member, netns
from tidelog_chaos.drivers.delay_line import DelayLine
from tidelog_chaos.drivers.kubernetes import Kubectl
from tidelog_chaos.drivers.netns import NetnsDriver

FIRST, SECOND = Member("node", 1), Member("node", 2)
BOTH_WAYS: Cut = frozenset([(FIRST, SECOND), (SECOND, FIRST)])
IS_IN_OUR_GROUP = f"import os, sys; sys.exit('it is' if os.getpgrp() == {os.getpgrp()} else 0)"


def test_commands_are_not_reached_by_an_interrupt_from_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolation.run(sys.executable, "-c", IS_IN_OUR_GROUP)
    for name in ("kubectl", "nsenter"):
        (tmp_path / name).write_text(f"#!{sys.executable}\nprint('ready', flush=True)\n{IS_IN_OUR_GROUP}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    Kubectl("default").run("get", "pods")
    assert DelayLine(tmp_path, "10.0.0.1", 1, 0, 0).end() == ""


def test_netns_driver_undoes_the_half_of_a_partition_that_it_could_bring_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, ...]] = []

    def run(*command: str) -> None:
        if done and done[-1][4] == command[4] == "replace":
            raise RuntimeError("ip does not answer")
        done.append(command)

    monkeypatch.setattr(netns, "run", run)
    driver = NetnsDriver(tmp_path, 1, 2, {}, ["partition"])
    with pytest.raises(RuntimeError, match="ip does not answer"):
        driver.cut(BOTH_WAYS)
    driver.cut(frozenset())
    assert [command[4] for command in done] == ["replace", "del"]
    assert done[0][2:4] == done[1][2:4]
