"""The quorum's replicated log: the engine, what it needs of its listener, and its configuration."""

from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.engine import TidelogRaft
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch, RaftEngine, RaftListener

__all__ = ["CommittedEntry", "LeaderAndEpoch", "RaftConfig", "RaftEngine", "RaftListener", "TidelogRaft"]
