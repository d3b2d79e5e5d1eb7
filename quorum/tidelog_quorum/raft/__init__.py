"""The quorum's replicated log: the engine, its listener's interface, and its configuration."""

from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.engine import TidelogRaft
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch
from tidelog_quorum.raft.snapshot_config import SnapshotConfig
