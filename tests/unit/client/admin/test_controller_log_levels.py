"""The levels of a controller's loggers, from the SDK and the command line."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tidelog import KafkaException
from tidelog.admin import QuorumAdmin
from tidelog.testing import FakeCluster

pytestmark = pytest.mark.costly
NAME = "tidelog_of_test.levels"


@pytest.fixture(scope="module")
def admin() -> Iterator[QuorumAdmin]:
    logging.getLogger(NAME).setLevel(logging.INFO)
    with (
        FakeCluster() as running,
        QuorumAdmin({"bootstrap.servers": running.bootstrap_servers, "request.timeout.ms": "20000"}) as connected,
    ):
        yield connected
    logging.getLogger(NAME).setLevel(logging.NOTSET)


def controller_id(admin: QuorumAdmin) -> int:
    return admin.describe_metadata_quorum().leader_id


def test_levels_change_and_are_described(admin: QuorumAdmin) -> None:
    controller = controller_id(admin)
    assert admin.describe_log_levels(controller)[NAME] == "INFO"
    admin.alter_log_levels(controller, {NAME: "DEBUG"})
    assert admin.describe_log_levels(controller)[NAME] == "DEBUG"
    assert logging.getLogger(NAME).level == logging.DEBUG
    admin.alter_log_levels(controller, {NAME: None})
    assert logging.getLogger(NAME).level == logging.NOTSET


@pytest.mark.parametrize(
    ("levels", "text"), [({NAME: "LOUD"}, "LOUD"), ({NAME: "DEBUG", "no.such": "INFO"}, "no.such")]
)
def test_change_with_an_unknown_level_or_logger_changes_nothing(
    admin: QuorumAdmin, levels: dict[str, str | None], text: str
) -> None:
    before = logging.getLogger(NAME).level
    with pytest.raises(KafkaException, match=text) as refused:
        admin.alter_log_levels(controller_id(admin), levels)
    assert refused.value.args[0].name() == "INVALID_CONFIG"
    assert logging.getLogger(NAME).level == before


def test_unknown_controller_is_named(admin: QuorumAdmin) -> None:
    with pytest.raises(KafkaException, match="controller 99") as refused:
        admin.describe_log_levels(99)
    assert refused.value.args[0].name() == "VOTER_NOT_FOUND"
