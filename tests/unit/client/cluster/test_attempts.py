"""Rounds of requests: which error an item has in the end."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.cluster.attempts import ask_until_settled
from tidelog_foundation.backoff import Backoff
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

BACKOFF = Backoff(1, 1, lambda: 0.5)


@pytest.mark.parametrize("cut", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode._TIMED_OUT])
def test_last_answer_about_an_item_is_its_error_when_the_deadline_cuts_a_round_short(cut: ErrorCode) -> None:
    rounds = []

    async def ask(keys: frozenset[str], left_ms: float) -> dict[str, TidelogError]:
        rounds.append(keys)
        if len(rounds) < 3:
            return {key: error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"round {len(rounds)}") for key in keys}
        await asyncio.sleep(left_ms / 1000 + 0.001)
        raise error_for(cut, "DEADLINE_EXCEEDED")

    found = asyncio.run(ask_until_settled(["a", "b"], ask, backoff=BACKOFF, timeout_ms=200))
    assert {key: str(error) for key, error in found.items()} == {
        key: str(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "round 2")) for key in "ab"
    }


def test_error_of_a_round_that_the_deadline_cut_short_is_that_of_an_item_without_an_answer() -> None:
    async def ask(keys: frozenset[str], left_ms: float) -> dict[str, TidelogError]:
        await asyncio.sleep(left_ms / 1000 + 0.001)
        raise error_for(ErrorCode.REQUEST_TIMED_OUT, "DEADLINE_EXCEEDED")

    found = asyncio.run(ask_until_settled(["a"], ask, backoff=BACKOFF, timeout_ms=20))
    assert str(found["a"]) == str(error_for(ErrorCode.REQUEST_TIMED_OUT, "DEADLINE_EXCEEDED"))


def test_answer_before_the_deadline_is_the_error_also_when_it_names_a_timeout() -> None:
    codes = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT])

    async def ask(keys: frozenset[str], left_ms: float) -> dict[str, TidelogError]:
        return dict.fromkeys(keys, error_for(next(codes), "answer"))

    found = asyncio.run(
        ask_until_settled(
            ["a"],
            ask,
            backoff=BACKOFF,
            timeout_ms=10_000,
            may_pass=lambda _, error: error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
    )
    assert str(found["a"]) == str(error_for(ErrorCode.REQUEST_TIMED_OUT, "answer"))
