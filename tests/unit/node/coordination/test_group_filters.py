"""ListGroups with filters that no state or type of a group is as long as."""

import asyncio

import pytest

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.messages import ListGroupsRequest
from tidelog_node.handlers.groups import MOST_FILTER_CHARS, list_groups


class Coordinator:
    """Coordinates no group."""

    def shards(self):
        return []


@pytest.mark.parametrize("kind", ["states_filter", "types_filter"])
def test_list_groups_refuses_a_filter_that_is_too_long(kind):
    def listed(length):
        request = ListGroupsRequest(**{kind: ("Empty", "x" * length)})
        return asyncio.run(list_groups(Coordinator(), request, None))

    assert listed(MOST_FILTER_CHARS).error is None
    error = listed(MOST_FILTER_CHARS + 1).error
    assert error.code is ErrorCode.INVALID_REQUEST
    assert error.message == "a state or type of groups has 256 characters, at most 255 are allowed"
