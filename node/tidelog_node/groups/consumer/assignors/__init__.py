"""The server-side assignors of KIP-848: ``uniform`` and ``range``."""

from tidelog_node.groups.consumer.assignors.range_assignor import assign_range
from tidelog_node.groups.consumer.assignors.registry import ASSIGNORS
from tidelog_node.groups.consumer.assignors.spec import Assignment, MemberSpec, TopicPartition
from tidelog_node.groups.consumer.assignors.uniform import assign_uniform
