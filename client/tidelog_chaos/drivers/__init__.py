"""Clusters under faults: :class:`FaultDriver` is the interface to a run; each other module implements it."""

from tidelog_chaos.drivers.driver import CLIENTS, Cut, Delay, End, FaultDriver, Member

__all__ = ["CLIENTS", "Cut", "Delay", "End", "FaultDriver", "Member"]
