"""A consumer's membership in a group, without I/O or a clock: the classic protocol and that of KIP-848."""

from tidelog.consumer.membership.factory import Membership, membership
from tidelog.consumer.membership.settings import MembershipSettings

__all__ = ["Membership", "MembershipSettings", "membership"]
