"""The checker of histories: compares the clients' history with the guarantees of a log, without I/O."""

from tidelog_chaos.checker.analysis import check

__all__ = ["check"]
