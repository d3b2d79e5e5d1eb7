from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from closed_clients import close_clients  # noqa: F401  # a fixture of all tests here
from small_disk import SmallDisk, why_not

from tidelog.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from spark_cluster import Spark
_serial = itertools.count()


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=3, nodes=3) as running:
        yield running


@pytest.fixture
def cluster(shared_cluster: LocalCluster) -> LocalCluster:
    """Three controllers and three nodes, all of them serving; a module's tests share them, each with its own topic."""
    for process in (*shared_cluster.controllers.values(), *shared_cluster.nodes.values()):
        process.start()
        process.resume()
    shared_cluster.wait_ready()
    return shared_cluster


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test has."""
    return f"topic-{next(_serial)}"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A file system of its own, which a test fills, turns read-only or takes away."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"needs a file system of its own: {reason}")
    with contextlib.ExitStack() as stack:
        try:
            small = stack.enter_context(SmallDisk(tmp_path / "small", size_mib=32))
        except RuntimeError as error:
            pytest.skip(f"needs a file system of its own, which cannot be mounted here: {error}")
        yield small


@pytest.fixture
def start_on_disk(disk: SmallDisk, tmp_path: Path) -> Iterator[Callable[..., LocalCluster]]:
    """Return what starts a cluster with one folder, such as ``node-1/data``, on the small disk.

    The arguments are the folder and those of :class:`LocalCluster` but for its ``data_dir``. The cluster ends with the
    test, before the disk is unmounted.
    """
    with contextlib.ExitStack() as stack:

        def start(folder: str, controllers: int, nodes: int, config: Mapping[str, object], **more: int) -> LocalCluster:
            data_dir = tmp_path / "cluster"
            (disk.path / "data").mkdir()
            (data_dir / folder).parent.mkdir(parents=True)
            (data_dir / folder).symlink_to(disk.path / "data")
            return stack.enter_context(LocalCluster(controllers, nodes, data_dir, config, **more))

        yield start


@pytest.fixture(scope="session")
def spark_under_test() -> Iterator[Spark]:
    """The Spark of the tests: local, or a cluster of processes with TIDELOG_SPARK_MASTER=standalone."""
    import spark_cluster

    with spark_cluster.spark_under_test() as found:
        yield found


@pytest.fixture(scope="session")
def spark(spark_under_test: Spark) -> Iterator[SparkSession]:
    """One Spark session for all tests of a worker: its JVM and the first query take half a minute."""
    import tidelog.spark

    settings = {**spark_under_test.settings, "spark.sql.streaming.numRecentProgressUpdates": "50"}
    session = tidelog.spark.session("tests", spark_under_test.master, settings)
    yield session
    session.stop()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("compat") is not None and "TIDELOG_COMPAT" not in os.environ:
        pytest.skip("dear: make compat runs it")
