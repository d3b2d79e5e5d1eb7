"""Builds the Raft engine that ``controller.quorum.engine`` names; imports pysyncobj only if it is selected."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import grpc.aio

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.transport.channels import OPEN, ChannelSecurity
from tidelog_foundation.transport.services import Guard, Identify, anyone
from tidelog_quorum.raft.engine import TidelogRaft
from tidelog_quorum.raft.protocol import RaftEngine
from tidelog_quorum.server.config import PYSYNCOBJ, QuorumConfig

_ROCKSDB_FILE = "CURRENT"
_PYSYNCOBJ_FOLDER = "pysyncobj"


@dataclass(frozen=True, slots=True)
class RaftServer:
    """The server of a listener, for the callers that ``identify`` and ``guard`` accept."""

    server: grpc.aio.Server
    identify: Identify = anyone
    guard: Guard | None = None


def build_engine(
    config: QuorumConfig, servers: Iterable[RaftServer] = (), security: ChannelSecurity = OPEN
) -> RaftEngine:
    """Return the engine, not started.

    Tidelog's own adds its service to the ``servers``, and connects with ``security``.

    Raises:
        ConfigError: the engine is not installed, rejects the addresses, or the folder has the other engine's log: a
            controller that changes its engine would start with an empty log and have forgotten its votes.
    """
    if config.controller_quorum_engine == PYSYNCOBJ:
        return _build_pysyncobj(config)
    directory = Path(config.metadata_log_dir)
    if (directory / _PYSYNCOBJ_FOLDER).exists():
        raise ConfigError(_other_engine(directory, "pysyncobj"))
    engine = TidelogRaft(
        config.node_id,
        config.voters,
        directory,
        config.cluster_id,
        config.raft_config(),
        advertised=config.advertised,
        listener=config.first_listener.name,
        bootstrap=config.bootstrap,
        snapshots=config.snapshot_config(),
        security=security,
    )
    for each in servers:
        engine.serve_on(each.server, each.identify, each.guard)
    return engine


def _build_pysyncobj(config: QuorumConfig) -> RaftEngine:
    try:
        from tidelog_quorum.raft.pysyncobj.engine import PySyncObjRaft
    except ModuleNotFoundError as error:
        if error.name != "pysyncobj":
            raise
        text = "controller.quorum.engine=pysyncobj: pysyncobj is not installed: pip install 'tidelog[pysyncobj]'"
        raise ConfigError(text) from error
    directory = Path(config.metadata_log_dir)
    if (directory / _ROCKSDB_FILE).exists():
        raise ConfigError(_other_engine(directory, "tidelog"))
    return PySyncObjRaft(
        config.node_id,
        config.voters,
        config.pysyncobj_voters,
        directory,
        config.cluster_id,
        config.raft_config(),
        config.snapshot_config(),
    )


def _other_engine(directory: Path, engine: str) -> str:
    return f"metadata.log.dir {directory} has the log of controller.quorum.engine={engine}: engines cannot be exchanged"
