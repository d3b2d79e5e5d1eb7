"""LeaveGroup of more members than a coordinator takes out in one step."""

import asyncio

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.messages import LeaveGroupRequest, LeavingMember
from tidelog_node.handlers import group_members


def test_leave_of_too_many_members_is_refused_with_the_limit():
    members = tuple(LeavingMember(f"m{i}") for i in range(group_members.MOST_LEAVING + 1))
    request = LeaveGroupRequest(group_id="g", members=members)
    answer = asyncio.run(group_members.leave_group(None, request, None))
    assert answer.error.code is ErrorCode.INVALID_REQUEST
    assert "25001 members" in answer.error.message
    assert "at most 25000" in answer.error.message
    assert not answer.members
