"""LeaveGroup of more members than a coordinator takes out in one step."""

import asyncio

from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_node.handlers import group_members


def test_leave_of_too_many_members_is_refused_with_the_limit():
    members = [pb.LeavingMember(member_id=f"m{i}") for i in range(group_members.MOST_LEAVING + 1)]
    request = pb.LeaveGroupRequest(group_id="g", members=members)
    answer = asyncio.run(group_members.leave_group(None, request, None))
    assert answer.error.code == ErrorCode.INVALID_REQUEST.code
    assert "25001 members" in answer.error.message
    assert "at most 25000" in answer.error.message
    assert not answer.members
