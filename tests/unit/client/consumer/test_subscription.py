"""Names and patterns of a subscription."""

from __future__ import annotations

import re

import pytest

from tidelog.consumer.core.subscription import Subscription
from tidelog_foundation.errors import TidelogError

EXISTING = ("orders", "orders-eu", "old-orders", "payments")


def test_patterns_find_a_part_of_the_name_from_its_beginning() -> None:
    assert Subscription(["^orders", "later"]).resolve(EXISTING) == {"orders", "orders-eu", "later"}
    assert Subscription(["^.*orders$"]).resolve(EXISTING) == {"orders", "old-orders"}
    assert Subscription(["^nothing"]).resolve(EXISTING) == frozenset()


def test_ignored_topics_belong_to_no_subscription() -> None:
    subscription = Subscription(["^orders", "payments"], ignored=["-eu$", "^pay"])
    assert subscription.resolve(EXISTING) == {"orders"}


@pytest.mark.parametrize("patterns", [["^orders"], ["^.*eu$", "^pay"], ["^a|orders"], []])
def test_one_expression_matches_whole_names_as_the_patterns_find_them(patterns: list[str]) -> None:
    subscription = Subscription([*patterns, "x"])
    matched = {name for name in EXISTING if re.fullmatch(subscription.pattern, name)}
    assert matched == subscription.resolve(EXISTING) - {"x"}


@pytest.mark.parametrize(
    ("topics", "text"),
    [
        ([], "_INVALID_ARG.*at least one topic"),
        (["a", "a"], "_INVALID_ARG.*each once"),
        (["^["], r"_INVALID_ARG.*\^\[.*not a valid regular expression"),
        (["a/b"], "INVALID_TOPIC_EXCEPTION.*a/b"),
        ([""], "INVALID_TOPIC_EXCEPTION.*empty"),
    ],
)
def test_what_cannot_be_subscribed_to_is_refused(topics: list[str], text: str) -> None:
    with pytest.raises(TidelogError, match=text):
        Subscription(topics)
