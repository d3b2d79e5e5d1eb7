"""The choice of a controller's Raft engine, and the settings of the quorum that each permits."""

from __future__ import annotations

import asyncio
import builtins
import logging
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ConfigError, ErrorCode
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.engine import TidelogRaft
from tidelog_quorum.raft.pysyncobj.engine import PySyncObjRaft
from tidelog_quorum.server.config import QuorumConfig
from tidelog_quorum.server.engines import RaftServer, build_engine

BASE = {
    "node.id": "1",
    "cluster.id": "c",
    "listeners": "GRPC://127.0.0.1:9093",
    "controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.1:9094",
    "metadata.log.dir": "/nowhere",
}
PYSYNCOBJ = {
    "controller.quorum.engine": "pysyncobj",
    "controller.quorum.pysyncobj.voters": "1@127.0.0.1:19093,2@127.0.0.1:19094",
}


def config_of(tmp_path: Path | None = None, **changes: str | None) -> QuorumConfig:
    settings = BASE | {key.replace("_", "."): value for key, value in changes.items()}  # type: ignore[operator]
    if tmp_path is not None:
        settings["metadata.log.dir"] = str(tmp_path)
    return parse_config(QuorumConfig, {k: v for k, v in settings.items() if v is not None})


def build(config: QuorumConfig) -> Any:
    async def run() -> Any:
        server = grpc.aio.server()
        try:
            return build_engine(config, [RaftServer(server)])
        finally:
            await server.stop(0)

    return asyncio.run(run())


@pytest.mark.costly
def test_engine_is_ours_where_nothing_is_said_and_pysyncobj_is_not_imported() -> None:
    code = (
        "import sys, tidelog_quorum.server.process, tidelog_quorum.server.engines\n"
        "assert 'pysyncobj' not in sys.modules, 'pysyncobj is imported without need'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_engine_is_the_one_that_is_named(tmp_path: Path) -> None:
    assert isinstance(build(config_of(tmp_path)), TidelogRaft)
    chosen = {key.replace(".", "_"): value for key, value in PYSYNCOBJ.items()}
    assert isinstance(build(config_of(tmp_path, **chosen)), PySyncObjRaft)


def test_engine_that_is_not_installed_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("tidelog_quorum.raft.pysyncobj"):
            raise ModuleNotFoundError("No module named 'pysyncobj'", name="pysyncobj")
        return original(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    chosen = {key.replace(".", "_"): value for key, value in PYSYNCOBJ.items()}
    with pytest.raises(ConfigError, match=r"not installed: pip install 'tidelog\[pysyncobj\]'"):
        build(config_of(tmp_path, **chosen))


def test_engine_refuses_the_log_of_the_other_one(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "CURRENT").touch()
    (tmp_path / "theirs" / "pysyncobj").mkdir(parents=True)
    chosen = {key.replace(".", "_"): value for key, value in PYSYNCOBJ.items()}
    for config in (config_of(tmp_path / "ours", **chosen), config_of(tmp_path / "theirs")):
        with pytest.raises(ConfigError, match="engines cannot be exchanged"):
            build(config)


@pytest.mark.parametrize("host", ["192.0.2.1", "example.org", "[::1]", "0.0.0.0"])
def test_pysyncobj_takes_loopback_addresses_alone_and_says_why(tmp_path: Path, host: str) -> None:
    voters = f"1@127.0.0.1:19093,2@{host}:19094"
    changes = {"controller_quorum_engine": "pysyncobj", "controller_quorum_pysyncobj_voters": voters}
    with pytest.raises(ConfigError, match=r"voter 2 at .* loopback addresses .* unpickles what it receives"):
        build(config_of(tmp_path, **changes))


def test_pysyncobj_names_its_limits_at_every_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        changes = {
            "controller_quorum_voters": "1@127.0.0.1:9093",
            "controller_quorum_engine": "pysyncobj",
            "controller_quorum_pysyncobj_voters": f"1@127.0.0.1:{port}",
        }
        engine = build(config_of(tmp_path, **changes))
        with caplog.at_level(logging.WARNING), pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            asyncio.run(engine.start(object()))
    for limit in ("lose acknowledged commands", "never syncs", "unpickles", "SIGBUS", "pre-vote", "change its voters"):
        assert limit in caplog.text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"controller_quorum_voters": None}, "controller.quorum.voters or controller.quorum.bootstrap.servers must"),
        ({"node_id": "3"}, "node.id 3 is not in controller.quorum.voters .* needs controller.quorum.bootstrap.servers"),
        (
            {"node_id": "3", "controller_quorum_bootstrap_servers": "h:1", "listeners": "GRPC://0.0.0.0:1"},
            "others cannot reach controller 3 at GRPC://0.0.0.0:1: set advertised.listeners",
        ),
        ({"controller_quorum_bootstrap_servers": "h"}, "must be host:port"),
        ({"controller_quorum_engine": "raft"}, "must be one of tidelog, pysyncobj"),
        ({"controller_quorum_engine": "pysyncobj"}, "needs controller.quorum.pysyncobj.voters"),
        (
            {
                "controller_quorum_engine": "pysyncobj",
                "controller_quorum_pysyncobj_voters": "1@127.0.0.1:1",
                "listeners": "GRPC_SSL://127.0.0.1:1",
            },
            "neither encrypts nor authenticates",
        ),
        (
            {"controller_quorum_engine": "pysyncobj", "controller_quorum_pysyncobj_voters": "1@127.0.0.1:1"},
            r"names \[1\], controller.quorum.voters names \[1, 2\]",
        ),
        (
            {
                "controller_quorum_engine": "pysyncobj",
                "controller_quorum_pysyncobj_voters": "1@127.0.0.1:1,2@127.0.0.1:2",
                "controller_quorum_bootstrap_servers": "127.0.0.1:1",
            },
            "cannot change its voters",
        ),
        ({"controller_quorum_pysyncobj_voters": "1@127.0.0.1:1"}, "only used with controller.quorum.engine=pysyncobj"),
        ({"metadata_log_max_record_bytes_between_snapshots": "0"}, "must be at least 1"),
        ({"leader_imbalance_check_interval_seconds": "0"}, "must be at least 1"),
    ],
)
def test_config_refuses_what_does_not_fit(changes: dict[str, str | None], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as refused:
        config_of(**changes)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_config_of_an_observer_needs_no_voters() -> None:
    changes = {
        "node_id": "4",
        "controller_quorum_voters": None,
        "controller_quorum_bootstrap_servers": "a:1, b:2,a:1",
        "listeners": "GRPC://0.0.0.0:9093",
        "advertised_listeners": "GRPC://d:9093",
    }
    config = config_of(**changes)
    expected = ((), [("a", 1), ("b", 2)], Endpoints.at("d", 9093, "GRPC"))
    assert (config.voters.ids, config.bootstrap, config.advertised) == expected


def test_config_passes_its_settings_on() -> None:
    config = config_of(
        controller_quorum_append_max_bytes="1000",
        controller_quorum_append_max_inflight="3",
        controller_quorum_append_max_inflight_bytes="5000",
        controller_quorum_snapshot_trailing_entries="7",
        controller_quorum_observers_max="2",
        metadata_log_max_snapshot_interval_ms="0",
        controller_quorum_snapshot_chunk_bytes="99",
        unclean_leader_election_enable="true",
        min_insync_replicas="2",
        delete_topic_enable="false",
        auto_leader_rebalance_enable="false",
        leader_imbalance_per_broker_percentage="33",
    )
    raft, snapshots = config.raft_config(), config.snapshot_config()
    controller: ControllerConfig = config
    assert (raft.max_append_bytes, raft.max_inflight_appends, raft.max_inflight_bytes) == (1000, 3, 5000)
    assert (raft.max_trailing_entries, raft.max_observers) == (7, 2)
    assert (snapshots.max_interval_ms, snapshots.chunk_bytes) == (0, 99)
    assert (controller.unclean_leader_election_enable, controller.min_insync_replicas) == (True, 2)
    assert (controller.delete_topic_enable, controller.auto_leader_rebalance_enable) == (False, False)
    assert controller.leader_imbalance_per_broker_percentage == 33
