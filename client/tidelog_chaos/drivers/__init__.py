"""Clusters under faults: :class:`FaultDriver` is what a run needs of one; each other module is a way to have one."""

from tidelog_chaos.drivers.driver import CLIENTS, Cut, Delay, End, FaultDriver, Member

__all__ = ["CLIENTS", "Cut", "Delay", "End", "FaultDriver", "Member"]
