"""`FakeCluster`: one in-memory node behind real gRPC, for tests."""

import os

# As in ``tidelog``, for a program that makes its cluster before its clients.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from tidelog.testing.fake.cluster import FakeCluster
from tidelog.testing.fake.faults import Fault

__all__ = ["FakeCluster", "Fault"]
