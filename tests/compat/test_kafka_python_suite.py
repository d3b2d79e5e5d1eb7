"""kafka-python's own integration tests: those that have passed pass, and one that begins to is to be listed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compat.cluster import Deployment, running
from compat.jars import Unavailable
from compat.kafka_python_suite import suite


@pytest.fixture
def single() -> Iterator[Deployment]:
    """One node, as the suite expects: what it asks of a broker it asks the one that it found.

    A topic that is created by its first use has two partitions there.
    """
    with running(nodes=1, config={"num.partitions": 2}) as deployment:
        yield deployment


@pytest.mark.compat
@pytest.mark.timeout(1_800)
def test_the_listed_tests_of_kafka_python_pass(single: Deployment) -> None:
    try:
        outcomes = suite.run(single.servers)
    except Unavailable as error:
        pytest.skip(str(error))
    passed = {test for test, outcome in outcomes.items() if outcome == "passed"}
    for test, outcome in sorted(outcomes.items()):
        print(f"{test}: {outcome}")
    listed = suite.allowed()
    broken = {test: outcomes.get(test, "not there") for test in sorted(listed - passed)}
    assert broken == {}, "listed in kafka_python.allow, and must pass"
    assert sorted(passed - listed) == [], "these pass now: add them to kafka_python.allow"
