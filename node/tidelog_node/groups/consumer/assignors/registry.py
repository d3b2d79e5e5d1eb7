"""The assignors by the names that members and ``group.consumer.assignors`` use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tidelog_node.groups.consumer.assignors.range_assignor import assign_range
from tidelog_node.groups.consumer.assignors.spec import Assignor
from tidelog_node.groups.consumer.assignors.uniform import assign_uniform

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_uniform, "range": assign_range})
"""All available assignors."""
