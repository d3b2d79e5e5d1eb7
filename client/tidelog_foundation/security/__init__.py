"""Identities of callers, shared by clients and servers."""

from tidelog_foundation.security.principal import ANONYMOUS, Principal
