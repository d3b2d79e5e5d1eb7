"""ACLs in a cluster without an authorizer: every request is refused, a malformed one ends the connection."""

from __future__ import annotations

from compat.wire.case import Case, Family

from tidelog_node.kafka.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

ANY, TOPIC, LITERAL, MATCH, READ, ALLOW = 1, 2, 3, 2, 3, 3
_READ = AclCreation(TOPIC, "t", LITERAL, "User:a", "*", READ, ALLOW)
_ALL = (ANY, None, ANY, None, None, ANY, ANY)
_UNKNOWN = (0, 99, -1)

_CASES = (
    Case("acls: create", CreateAclsRequest([_READ, _READ])),
    Case("acls: create none", CreateAclsRequest([])),
    Case("acls: create for no principal", CreateAclsRequest([AclCreation(TOPIC, "t", 3, "a", "*", READ, ALLOW)])),
    Case("acls: describe", DescribeAclsRequest(*_ALL)),
    Case("acls: describe a match", DescribeAclsRequest(TOPIC, "t", MATCH, "User:a", "*", READ, ALLOW)),
    Case("acls: delete", DeleteAclsRequest([DeleteAclsFilter(*_ALL), DeleteAclsFilter(TOPIC, *_ALL[1:])])),
    Case("acls: delete none", DeleteAclsRequest([])),
    *(
        Case(f"acls: create on type {kind}", CreateAclsRequest([AclCreation(kind, "t", 3, "User:a", "*", 3, 3)]))
        for kind in _UNKNOWN
    ),
    *(Case(f"acls: describe operation {n}", DescribeAclsRequest(*_ALL[:5], n, ANY)) for n in _UNKNOWN),
    *(
        Case(f"acls: delete pattern {n}", DeleteAclsRequest([DeleteAclsFilter(ANY, None, n, *_ALL[3:])]))
        for n in _UNKNOWN
    ),
)

FAMILIES = (Family("acls", _CASES),)
