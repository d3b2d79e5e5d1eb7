"""An in-memory cluster for tests, made of the servers' own parts. ``tidelog.testing`` exports its public names."""

import os

# As in ``tidelog``, for a program that makes its cluster before its clients.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from tidelog_testing.fake_cluster import FakeCluster

__all__ = ["FakeCluster"]
