"""The certificate authority of the tests is the product's."""

from __future__ import annotations

from tidelog_foundation.security.authority import Authority, Issued

__all__ = ["Authority", "Issued"]
