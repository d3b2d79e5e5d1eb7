"""A cluster in memory for tests, of the servers' own parts; ``tidelog.testing`` has its public names."""

import os

# As in ``tidelog``, for a program that makes its cluster before its clients.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from tidelog_testing.fake_cluster import FakeCluster

__all__ = ["FakeCluster"]
