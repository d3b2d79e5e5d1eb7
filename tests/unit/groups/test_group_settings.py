"""The settings of groups fit each other, or say what does not."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog_node.groups.settings import GroupSettings


def test_defaults_are_kafkas() -> None:
    settings = GroupSettings()
    assert settings.group_initial_rebalance_delay_ms == 3_000
    assert settings.offsets_retention_ms == 7 * 24 * 60 * 60 * 1_000
    assert (settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms) == (6_000, 1_800_000)
    assert (settings.consumer_session_timeout_ms, settings.consumer_heartbeat_interval_ms) == (45_000, 5_000)
    assert settings.consumer_migration_policy == "bidirectional"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"group_min_session_timeout_ms": 2, "group_max_session_timeout_ms": 1},
            "group.min.session.timeout.ms 2 must not be above group.max.session.timeout.ms 1",
        ),
        (
            {"consumer_session_timeout_ms": 1},
            "group.consumer.session.timeout.ms 1 must be from group.consumer.min.session.timeout.ms 45000 to "
            "group.consumer.max.session.timeout.ms 60000",
        ),
        (
            {"consumer_heartbeat_interval_ms": 20_000},
            "group.consumer.heartbeat.interval.ms 20000 must be from group.consumer.min.heartbeat.interval.ms 5000 to "
            "group.consumer.max.heartbeat.interval.ms 15000",
        ),
        (
            {"consumer_heartbeat_interval_ms": 50_000, "consumer_max_heartbeat_interval_ms": 50_000},
            "group.consumer.heartbeat.interval.ms 50000 must be less than group.consumer.session.timeout.ms 45000",
        ),
        ({"consumer_assignors": ()}, "group.consumer.assignors must name an assignor"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace(".", "[.]")):
        GroupSettings(**values)
