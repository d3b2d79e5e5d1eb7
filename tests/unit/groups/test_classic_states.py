"""The states of a classic group change by Kafka's table alone (ClassicGroupState)."""

from __future__ import annotations

import pytest

from tidelog_node.groups.classic import ClassicGroup, ClassicState

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicState
VALID = {
    *((EMPTY, PREPARING), (STABLE, PREPARING), (COMPLETING, PREPARING)),
    *((PREPARING, COMPLETING), (COMPLETING, STABLE), (PREPARING, EMPTY)),
    *((state, DEAD) for state in ClassicState),
}


@pytest.mark.parametrize("after", ClassicState)
@pytest.mark.parametrize("before", ClassicState)
def test_classic_group_changes_its_state_as_the_table_allows(before: ClassicState, after: ClassicState) -> None:
    group = ClassicGroup("g", before)
    if (before, after) in VALID:
        group.transition_to(after, 5)
        assert (group.previous_state, group.state, group.state_timestamp_ms) == (before, after, 5)
    else:
        with pytest.raises(AssertionError, match=f"g: from {before} to {after}"):
            group.transition_to(after, 5)
        assert group.state is before


def test_classic_group_has_no_other_way_to_change_its_state() -> None:
    group = ClassicGroup("g")
    with pytest.raises(AttributeError):
        group.state = STABLE  # type: ignore[misc]
    assert group.state is EMPTY
