"""A consumer's membership in a group by the classic protocol or KIP-848's, without I/O or a clock."""

from tidelog.consumer.membership.factory import Membership, membership
from tidelog.consumer.membership.settings import MembershipSettings

__all__ = ["Membership", "MembershipSettings", "membership"]
