"""Clusters under faults: :class:`FaultDriver` is the interface to a run, and the base of the drivers."""

from tidelog_chaos.drivers.driver import CLIENTS, Cut, Delay, End, FaultDriver, Member

__all__ = ["CLIENTS", "Cut", "Delay", "End", "FaultDriver", "Member"]
