from __future__ import annotations

import os

import pytest
from earlier_release import interpreter_of, newest_tag

_FROM = "TIDELOG_UPGRADE_FROM"


@pytest.fixture(scope="session")
def earlier() -> str:
    """The interpreter of the release before: that of TIDELOG_UPGRADE_FROM, a git ref, else the newest tag."""
    if _FROM not in os.environ:
        pytest.skip("builds an earlier release: make upgrade runs it")
    ref = os.environ[_FROM] or newest_tag()
    assert ref is not None, "no tag names an earlier release: make upgrade FROM=<git ref>"
    return interpreter_of(ref)
