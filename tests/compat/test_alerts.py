"""Each alert fires for the fault that it is about: a real Prometheus scrapes a real cluster with that fault."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator

import pytest
from acknowledged import wait_for
from compat.alert_faults.cases import CASES, Case
from compat.alert_faults.deployment import WAIT_S, Deployment, deployed
from small_disk import why_not

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not on the PATH"),
    pytest.mark.skipif(why_not() is not None, reason=f"needs a file system of its own: {why_not()}"),
]


@pytest.fixture(scope="module")
def deployment_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Deployment]]:
    """Return what returns a deployment by its name. One runs at a time, for all of its cases."""
    running: dict[str, Deployment] = {}
    with contextlib.ExitStack() as stack:

        def start(name: str) -> Deployment:
            if name not in running:
                stack.close()
                running.clear()
                running[name] = stack.enter_context(deployed(name, tmp_path_factory.mktemp(name)))
            return running[name]

        yield start


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}-{case.fault.__name__}")
def test_alert_fires_for_its_fault_and_not_before(deployment_of: Callable[[str], Deployment], case: Case) -> None:
    alert, deployment = f"Tidelog{case.alert}", deployment_of(case.deployment)
    deployment.heal()
    wait_for(lambda: deployment.is_silent(alert), f"{alert} is silent before its fault", WAIT_S)
    with case.fault(deployment):
        wait_for(lambda: deployment.firing(alert) == {alert}, f"{alert} fires", WAIT_S)
