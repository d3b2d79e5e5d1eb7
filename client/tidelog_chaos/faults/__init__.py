"""The kinds of faults, their plan, and the nemesis that injects them into a cluster."""

from tidelog_chaos.faults.nemesis import Nemesis
from tidelog_chaos.faults.plan import KINDS, PlannedFault, draw_plan, parse_faults

__all__ = ["KINDS", "Nemesis", "PlannedFault", "draw_plan", "parse_faults"]
