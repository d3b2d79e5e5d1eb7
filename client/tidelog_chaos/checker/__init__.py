"""The checker of histories: what clients saw against what a log promises, without I/O."""

from tidelog_chaos.checker.analysis import check
from tidelog_chaos.checker.outcome import outcome_of

__all__ = ["check", "outcome_of"]
