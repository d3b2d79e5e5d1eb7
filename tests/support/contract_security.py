"""The security of the real clusters in the contract suite, and thus of all connections to them and between them."""

from __future__ import annotations

import os

SECURITY = os.environ.get("TIDELOG_CONTRACT_SECURITY") or None
"""``make secured`` sets it; without it the clusters are open."""
