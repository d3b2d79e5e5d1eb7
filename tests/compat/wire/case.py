"""A request that both brokers are asked, in all versions that both serve or in some, and what comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from compat.wire.compare import Difference, Plain, differences
from compat.wire.known import is_known
from compat.wire.side import Side

from tidelog_node.kafka.protocol.fields import Message

_SETTLED_S = 5.0
_COMES_S = 15.0
_BUSY = ("CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")


@dataclass(frozen=True, slots=True)
class Case:
    """One row of a table; a family's rows are asked in their order, each version from the oldest on."""

    name: str
    request: Message | Callable[[Side], Message]
    """The request, or a function that makes it with the broker's ids."""
    versions: Sequence[int] = ()
    """None: all that both serve."""
    ignore: Sequence[str] = ()
    """Fields that say something of the machine, or of when it was asked."""
    keep: str = ""
    """The key of the response in :attr:`Side.kept`, for later cases."""
    settles: bool = False
    """True if the brokers reach the final answer some time after the preceding case."""
    waits: bool = False
    """True if each broker is asked again while an earlier transaction is not yet complete there."""
    until: str = ""
    """A text that the answer of each comes to have; each is asked until then."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """A table of cases, and what is to be there before them."""

    name: str
    cases: Sequence[Case]
    prepare: Callable[[Side], None] = lambda side: None

    def compared(
        self, kafka: Side, tidelog: Side, served: Sequence[dict[int, range]] | None = None
    ) -> Iterator[Difference]:
        """Ask both all cases; yield every difference, once for each version that has it.

        ``served`` has the versions of the APIs of both, which callers who may not ask are given.
        """
        served = served or (kafka.serves(), tidelog.serves())
        for side in (kafka, tidelog):
            self.prepare(side)
        for case in self.cases:
            for version in case.versions or _common(case, served, kafka):
                yield from _settled(case, version, kafka, tidelog)


def _common(case: Case, served: Sequence[dict[int, range]], side: Side) -> Sequence[int]:
    request = _request(case, side)
    first, last = request.VERSIONS
    versions = [v for v in range(first, last + 1) if all(v in side[request.API_KEY] for side in served)]
    assert versions, f"no version of {type(request).__name__} is served by both"
    return versions


def _request(case: Case, side: Side) -> Message:
    return case.request if isinstance(case.request, Message) else case.request(side)


def _settled(case: Case, version: int, kafka: Side, tidelog: Side) -> list[Difference]:
    deadline = time.monotonic() + (_SETTLED_S if case.settles else 0)
    while True:
        found = list(differences(case.name, _answer(case, version, kafka), _answer(case, version, tidelog)))
        if all(is_known(difference) for difference in found) or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def _answer(case: Case, version: int, side: Side) -> object:
    deadline = time.monotonic() + _COMES_S
    while True:
        response: Any = side.ask(_request(case, side), version)
        plain = Plain(side, case.ignore).of(response)
        if not _is_early(case, str(plain)) or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if case.keep:
        side.kept[case.keep] = response
    return plain


def _is_early(case: Case, answer: str) -> bool:
    return case.until not in answer or (case.waits and any(error in answer for error in _BUSY))
