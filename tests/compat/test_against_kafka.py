"""The same requests to Apache Kafka and to Tidelog, in every version that both serve; the responses field by field.

What differs is listed in :data:`compat.wire.known.KNOWN`, with a reason, and nothing else may; what is listed there
must differ, so that the list only shrinks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from functools import cache

import pytest
from compat.jars import Unavailable
from compat.wire.case import Family
from compat.wire.compare import Difference
from compat.wire.families import FAMILIES
from compat.wire.known import KNOWN, is_known
from compat.wire.pair import pair
from compat.wire.side import Side
from compat.wire.two_phase import REFUSED

pytestmark = pytest.mark.compat

Compared = Callable[[Family], Collection[Difference]]


@pytest.fixture(scope="module")
def compared() -> Iterator[Compared]:
    """The differences of a family, compared once. Skip the tests if Kafka is not available."""
    with _pair() as (kafka, tidelog):
        yield cache(lambda family: dict.fromkeys(family.compared(kafka, tidelog)))


@contextlib.contextmanager
def _pair(**changes: object) -> Iterator[tuple[Side, Side]]:
    with contextlib.ExitStack() as stack:
        try:
            sides = stack.enter_context(pair({key.replace("_", "."): value for key, value in changes.items()}))
        except Unavailable as error:
            pytest.skip(str(error))
        yield sides


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_answers_as_kafka_does(family: Family, compared: Compared) -> None:
    new = [str(found) for found in compared(family) if not is_known(found)]
    assert not new, "these differ (case, field, Kafka, Tidelog):\n" + "\n".join(new)


def test_refuses_two_phase_commits_as_kafka_does_unless_they_are_enabled() -> None:
    with _pair(transaction_two_phase_commit_enable=False) as (kafka, tidelog):
        new = [str(found) for found in REFUSED.compared(kafka, tidelog) if not is_known(found)]
    assert not new, "these differ (case, field, Kafka, Tidelog):\n" + "\n".join(new)


def test_what_is_known_to_differ_still_does(compared: Compared) -> None:
    found = [difference for family in FAMILIES for difference in compared(family)]
    gone = [str(known) for known in KNOWN if not any(known.covers(difference) for difference in found)]
    assert not gone, "these do not differ any more:\n" + "\n".join(gone)


def test_cases_have_names_of_their_own() -> None:
    names = [case.name for family in FAMILIES for case in family.cases]
    assert len(names) == len(set(names))
