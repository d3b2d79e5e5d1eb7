"""Clusters for tests: `LocalCluster` runs real processes, `FakeCluster` is one node in this process's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.testing.local import LocalCluster
    from tidelog_testing import FakeCluster

__all__ = ["FakeCluster", "LocalCluster"]

_SERVERS = ("tidelog_node", "tidelog_quorum", "tidelog_testing", "grpc_health", "javaproperties", "rocksdict", "xxhash")


def __getattr__(name: str) -> object:
    # The imports are lazy, because neither class needs the other's dependencies.
    if name == "LocalCluster":
        from tidelog.testing.local import LocalCluster

        return LocalCluster
    if name == "FakeCluster":
        return _fake_cluster()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _fake_cluster() -> type[FakeCluster]:
    try:
        from tidelog_testing import FakeCluster
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in _SERVERS:
            raise
        text = f"FakeCluster needs the servers, and {error.name} is not installed: pip install 'tidelog[testing]'"
        raise ModuleNotFoundError(text, name=error.name) from error
    return FakeCluster
