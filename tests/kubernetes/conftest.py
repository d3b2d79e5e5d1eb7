"""Tests on a real Kubernetes, that of the current context of kubectl, with the images of the project loaded."""

from __future__ import annotations

import os

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    if not os.environ.get("TIDELOG_KUBERNETES"):
        pytest.skip("needs a Kubernetes: make k8s runs it")
