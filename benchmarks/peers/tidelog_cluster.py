"""Tidelog in the comparison: a local cluster, used through its Kafka listeners."""

from __future__ import annotations

import compileall
from collections.abc import Mapping
from pathlib import Path

import tidelog
import tidelog_foundation
import tidelog_node
import tidelog_quorum
from benchmarks.peers.peer import SETTINGS, STOP_TIMEOUT_S, Peer, Size
from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle

_OWN_SETTINGS = {"inter.broker.listener.name": "PLAINTEXT"}
"""Replicas fetch through the Kafka clients' listener, as in the peer."""


class TidelogCluster(Peer):
    """A cluster of Tidelog processes with the settings of the peer."""

    def __init__(self, size: Size, settings: Mapping[str, object] | None = None) -> None:
        """``settings`` are added to those of all processes."""
        super().__init__("Tidelog", size)
        self._settings = settings or {}
        self._cluster: LocalCluster | None = None

    def prepare(self) -> None:
        """Compile the modules to bytecode, as pip does at installation."""
        for package in (tidelog, tidelog_foundation, tidelog_quorum, tidelog_node):
            for folder in package.__path__:
                compileall.compile_dir(Path(folder), quiet=2)

    def start(self) -> None:
        config = {**SETTINGS, **_OWN_SETTINGS, **self._settings}
        self._cluster = LocalCluster(self.size.controllers, self.size.brokers, config=config)
        self._cluster.start()

    @property
    def bootstrap_servers(self) -> str:
        return self._started.kafka_bootstrap_servers

    @property
    def native_servers(self) -> str:
        """The addresses of the nodes for Tidelog's own clients."""
        return self._started.bootstrap_servers

    def pids(self) -> Mapping[str, int]:
        return {handle.name: handle.pid for handle in self._handles() if handle.is_running}

    def broker_pid(self, broker_id: int) -> int:
        return self._started.nodes[broker_id].pid

    def kill(self, broker_id: int) -> None:
        self._started.nodes[broker_id].kill()

    def stop(self, broker_id: int) -> None:
        self._started.nodes[broker_id].terminate()
        self._started.nodes[broker_id].wait(STOP_TIMEOUT_S)

    def data_folder(self, broker_id: int) -> Path:
        return self._started.data_dir / f"node-{broker_id}" / "data"

    def restart(self, broker_id: int) -> None:
        self._started.nodes[broker_id].start()

    def last_words(self) -> str:
        return "\n".join(f"{handle.name}:\n{handle.log_tail()}" for handle in self._handles())

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    @property
    def _started(self) -> LocalCluster:
        assert self._cluster is not None, "the cluster is not started"
        return self._cluster

    def _handles(self) -> list[ProcessHandle]:
        return [*self._started.controllers.values(), *self._started.nodes.values()]
