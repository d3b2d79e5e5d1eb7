"""Decisions whether principals may perform operations on resources."""

from tidelog_foundation.authorization.standard import StandardRules
