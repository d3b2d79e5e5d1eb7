"""`FakeCluster`: one in-memory node behind real gRPC, for tests."""

from tidelog.testing.fake.cluster import FakeCluster
from tidelog.testing.fake.faults import Fault

__all__ = ["FakeCluster", "Fault"]
