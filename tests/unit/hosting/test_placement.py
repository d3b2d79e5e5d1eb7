"""The folders in which a replica's log is opened or created, and those in which it must not be."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, DirectoryId, TopicId
from tidelog_node.hosting.commands import OpenLog
from tidelog_node.hosting.placement import Candidate, place

A, B, C = Path("/a"), Path("/b"), Path("/c")
ID_A, ID_B, ID_C = (DirectoryId(letter * 16) for letter in (b"a", b"b", b"c"))
NEW = OpenLog(("t", 0), TopicId(b"t" * 16), TopicConfig(), assigned=UNASSIGNED_DIRECTORY, is_in_sync=True, is_new=True)


def wanted(**values: Any) -> OpenLog:
    return dataclasses.replace(NEW, **values)


def candidates(a: int = 3, b: int = 2, holding: Path | None = None) -> list[Candidate]:
    return [Candidate(A, ID_A, a, holding == A), Candidate(B, ID_B, b, holding == B)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, B),
        ({"assigned": ID_A}, A),
        ({"assigned": ID_A, "preferred": B}, B),
        ({"assigned": ID_A, "preferred": C}, A),
        ({"assigned": ID_C, "is_in_sync": False}, B),
        ({"is_new": False}, B),
    ],
    ids=["fewest", "assigned", "preferred", "preferred is offline", "out of the isr", "never assigned"],
)
def test_new_log_goes_where_it_is_preferred_or_assigned_or_to_the_directory_with_the_fewest(
    values: dict[str, Any], expected: Path
) -> None:
    assert place(wanted(**values), candidates(), ()) == expected


@pytest.mark.parametrize("values", [{}, {"assigned": ID_C}, {"is_new": False}, {"preferred": B}])
@pytest.mark.parametrize("failed", [(), (C,)])
def test_log_that_has_a_folder_is_opened_there_whatever_is_offline(
    values: dict[str, Any], failed: tuple[Path, ...]
) -> None:
    assert place(wanted(**values), candidates(holding=A), failed) == A


@pytest.mark.parametrize(
    "values",
    [{"assigned": ID_C}, {"assigned": ID_C, "is_in_sync": False}, {"is_new": False}],
    ids=["assigned there", "assigned there, out of the isr", "never assigned"],
)
def test_log_that_may_be_in_an_offline_directory_is_not_created(values: dict[str, Any]) -> None:
    with pytest.raises(TidelogError, match="may be in a log directory that is offline: /c") as caught:
        place(wanted(**values), candidates(), (C,))
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("values", [{}, {"is_new": False, "is_in_sync": False}, {"assigned": ID_A}])
def test_log_that_cannot_be_in_an_offline_directory_is_created(values: dict[str, Any]) -> None:
    assert place(wanted(**values), candidates(), (C,)) in (A, B)


@pytest.mark.parametrize("assigned", [ID_C, LOST_DIRECTORY])
def test_last_in_sync_replica_is_not_created_while_its_directory_is_missing(assigned: DirectoryId) -> None:
    with pytest.raises(TidelogError, match=f"last in-sync replica, and its log directory {assigned.hex()}"):
        place(wanted(assigned=assigned), candidates(), ())


def test_nothing_is_created_without_a_directory() -> None:
    with pytest.raises(TidelogError, match="offline: /a, /b"):
        place(wanted(), [], (A, B))
