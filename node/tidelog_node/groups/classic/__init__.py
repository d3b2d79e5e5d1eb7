"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, after Kafka's ClassicGroup."""

from tidelog_node.groups.classic.group import ClassicGroup, ClassicMember, ClassicState

__all__ = ["ClassicGroup", "ClassicMember", "ClassicState"]
