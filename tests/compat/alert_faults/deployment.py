"""The clusters whose faults the alerts are about, each with a Prometheus that scrapes it every second."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from acknowledged import wait_for
from compat.alert_faults.rules import monitored_cluster, quick_rules
from small_disk import SmallDisk

from tidelog import AdminClient
from tidelog.admin import ElectionType, NewTopic
from tidelog.testing import LocalCluster
from tidelog.testing.process import Place

WAIT_S: Final = 90.0
REFUSED_ADDRESS: Final = "127.0.0.2"
"""An address of this machine from which a node of the deployment ``secured`` accepts no connection."""
FEW_FILES: Final = 512
FEW_FILES_NODE: Final = 3
"""The node of the deployment ``replicas`` that may have ``FEW_FILES`` open files."""
_DISK_MIB: Final = 32
_QUIET_S: Final = 3


@dataclass(frozen=True, slots=True)
class Deployment:
    """A running cluster with its Prometheus, whose files are in ``folder``."""

    cluster: LocalCluster
    prometheus: Any
    folder: Path
    disk: SmallDisk | None = None
    """The file system of the second log directory of node 1, where the deployment has one."""

    @property
    def small_disk(self) -> SmallDisk:
        """The small disk of a deployment that has one."""
        assert self.disk is not None
        return self.disk

    def admin(self) -> AdminClient:
        """Return an admin client, to be closed by the caller."""
        return AdminClient(self.cluster.client_settings())

    def create_topic(self, name: str, partitions: int, replicas: int, **config: str) -> None:
        """Create a topic; underscores in names of settings stand for dots."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        with self.admin() as admin:
            admin.create_topics([NewTopic(name, partitions, replicas, config=settings)])[name].result(WAIT_S)

    def firing(self, alert: str = ".*") -> set[str]:
        """Return the names of the alerts that fire."""
        found = self.prometheus.query(f'ALERTS{{alertname=~"{alert}",alertstate="firing"}}')
        return {each["metric"]["alertname"] for each in found}

    def series(self, expression: str) -> int:
        """Return the number of series that an expression has."""
        return len(self.prometheus.query(expression))

    def is_silent(self, alert: str) -> bool:
        """Return whether an alert has neither fired nor been pending for some seconds in which Prometheus worked."""
        is_known = self.series(f"count_over_time(up[{_QUIET_S}s]) >= {_QUIET_S - 1}") > 0
        return is_known and not self.series(f'count_over_time(ALERTS{{alertname="{alert}"}}[{_QUIET_S}s])')

    def scrape_also(self, kind: str, address: str) -> None:
        """Let Prometheus scrape another process as a member of the cluster, until :meth:`scrape_no_more`."""
        labels = {"cluster": monitored_cluster.CLUSTER, "instance": f"{kind}-of-another-cluster"}
        path = self._more(kind)
        path.with_suffix(".new").write_text(json.dumps([{"targets": [address], "labels": labels}]))
        path.with_suffix(".new").replace(path)

    def scrape_no_more(self, kind: str) -> None:
        """Undo :meth:`scrape_also`."""
        self._more(kind).write_text("[]")

    def heal(self) -> None:
        """Start all processes and give each partition its preferred leader."""
        for process in (*self.cluster.controllers.values(), *self.cluster.nodes.values()):
            process.start()
            process.resume()
        self.cluster.wait_ready(WAIT_S)
        with self.admin() as admin:
            wait_for(lambda: self._elected(admin), "the preferred leaders", WAIT_S)

    def _elected(self, admin: AdminClient) -> bool:
        errors = admin.elect_leaders(ElectionType.PREFERRED).result(WAIT_S).values()
        return all(error is None for error in errors)

    def _more(self, kind: str) -> Path:
        return self.folder / f"more-{kind}s-1.json"


@contextlib.contextmanager
def repeated(action: Callable[[], object], pause_s: float) -> Iterator[None]:
    """Repeat an action in a thread. An exception of the action fails the test."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(pause_s):
            action()

    thread = threading.Thread(target=work, name="fault")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def deployed(name: str, folder: Path) -> Iterator[Deployment]:
    """Run a deployment of ``DEPLOYMENTS``, and wait until no alert fires."""
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(SmallDisk(folder / "small", _DISK_MIB)) if name == "storage" else None
        cluster = stack.enter_context(DEPLOYMENTS[name](folder, disk))
        run = monitored_cluster.scraped(cluster, folder, scrape_s=1, rules=quick_rules())
        deployment = Deployment(cluster, stack.enter_context(run), folder, disk)
        processes = len(cluster.controllers) + len(cluster.nodes)
        wait_for(lambda: deployment.series("up == 1") == processes, "all processes are scraped", WAIT_S)
        wait_for(lambda: deployment.series("rate(tidelog_event_loop_cpu_seconds_total[9s])") == processes, "rates")
        wait_for(lambda: deployment.firing() == set(), "a quiet cluster", WAIT_S)
        yield deployment


def _quorum(folder: Path, disk: SmallDisk | None) -> LocalCluster:
    """Three controllers and two nodes that are fenced after two seconds."""
    return LocalCluster(3, 2, metrics=True)


def _replicas(folder: Path, disk: SmallDisk | None) -> LocalCluster:
    """Three nodes: one that is paused stays registered for a minute, and in sync for eight seconds."""

    def place(kind: str, number: int) -> Place:
        is_limited = (kind, number) == ("node", FEW_FILES_NODE)
        return Place(wrapper=("prlimit", f"--nofile={FEW_FILES}:{FEW_FILES}", "--") if is_limited else ())

    settings = {"broker.session.timeout.ms": 60_000, "replica.lag.time.max.ms": 8_000}
    return LocalCluster(1, 3, config=settings, metrics=True, place=place)


def _storage(folder: Path, disk: SmallDisk | None) -> LocalCluster:
    """Two nodes with two log directories each; the second one of node 1 is on the small disk."""
    assert disk is not None
    settings = {
        "auto.leader.rebalance.enable": False,
        "log.cleaner.backoff.ms": 500,
        "log.flush.interval.ms": 200,
        "metrics.topics.max": 12,
    }
    data_dir = folder / "cluster"
    (disk.path / "data").mkdir()
    (data_dir / "node-1").mkdir(parents=True)
    (data_dir / "node-1" / "data-2").symlink_to(disk.path / "data")
    return LocalCluster(1, 2, data_dir, settings, log_dirs_per_node=2, metrics=True)


def _secured(folder: Path, disk: SmallDisk | None) -> LocalCluster:
    """A node with TLS and passwords."""
    settings = {"max.connections.per.ip.overrides": f"{REFUSED_ADDRESS}:0"}
    return LocalCluster(1, 1, config=settings, security="sasl_ssl", metrics=True)


DEPLOYMENTS: Final[Mapping[str, Callable[[Path, SmallDisk | None], LocalCluster]]] = MappingProxyType(
    {"quorum": _quorum, "replicas": _replicas, "storage": _storage, "secured": _secured}
)
