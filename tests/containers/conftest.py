"""Tests of the image in containers, on the Docker engine of the environment (``DOCKER_HOST``)."""

from __future__ import annotations

import functools
import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException
from testcontainers.core.image import DockerImage
from testcontainers.core.network import Network

REPOSITORY = Path(__file__).parents[2]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if not os.environ.get("TIDELOG_CONTAINERS"):
        pytest.skip("needs a Docker engine and builds an image: make containers runs it")
    if reason := _why_no_engine():
        pytest.fail(reason)


@functools.cache
def _why_no_engine() -> str:
    """Why no engine can be used; empty when one answers."""
    with warnings.catch_warnings():
        # The client forgets the socket of an attempt that failed; it must go while the warning is ignored.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            client = docker.from_env(timeout=5)
            try:
                client.ping()
            finally:
                client.close()
        except (DockerException, OSError) as error:
            reason = f"no Docker engine answers: {' '.join(str(error).split())}"
        else:
            reason = ""
        gc.collect()
    return reason


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """The image to test: TIDELOG_IMAGE, or one that is built of this tree."""
    if given := os.environ.get("TIDELOG_IMAGE"):
        yield given
        return
    # Kept afterwards: the next build takes its layers from it. The build downloads packages as the host does.
    with DockerImage(REPOSITORY, tag="tidelog:test", clean_up=False, network_mode="host") as built:
        yield str(built)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network() as created:
        yield created
