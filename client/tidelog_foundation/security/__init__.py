"""Identities of callers, and the TLS settings with the certificates and contexts made from them.

The package exports what needs no cryptography; clients without TLS load nothing else.
"""

from tidelog_foundation.security.principal import ANONYMOUS, USER, Principal
