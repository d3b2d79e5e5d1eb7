"""The levels of a node's loggers, described and changed like settings (KIP-412)."""

import asyncio
import logging

import pytest

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.configs import (
    BROKER_LOGGER,
    ConfigOperation,
    ConfigOperationType,
    ConfigResourceChange,
    ConfigResourceName,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog_node import handlers

SET, DELETE = ConfigOperationType.SET, ConfigOperationType.DELETE
LOGGERS = ConfigResourceName(BROKER_LOGGER, "1")


@pytest.fixture(autouse=True)
def loggers():
    """Loggers of this test alone, whose levels no other test sees."""
    names = ("levels", "levels.above.below")
    found = [logging.getLogger(name) for name in names]
    found[0].setLevel(logging.INFO)
    yield
    for name in (*names, "levels.above"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def ask(cluster_of):
    """Call a handler of node 1."""

    def call(handler, request):
        async def run():
            async with cluster_of(1) as cluster:
                return await handler(cluster.nodes[1].context, request)

        return asyncio.run(run())

    return call


def levels(ask, *names, node="1"):
    wanted = DescribeConfigsResource(ConfigResourceName(BROKER_LOGGER, node), names)
    [result] = ask(handlers.describe_configs, DescribeConfigsRequest((wanted,))).resources
    assert {c.source for c in result.configs} <= {ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG}
    return {c.name: c.value for c in result.configs} if result.error is None else result.error.code


def alter(ask, *operations, resource=LOGGERS, validate_only=False, replaces_all=False):
    """Return the code of the resource's error. An operation is (logger, level) or (logger, level, type)."""
    changes = tuple(ConfigOperation(name, kind[0] if kind else SET, value) for name, value, *kind in operations)
    request = IncrementalAlterConfigsRequest((ConfigResourceChange(resource, changes, replaces_all),), validate_only)
    [result] = ask(handlers.incremental_alter_configs, request).resources
    return None if result.error is None else result.error.code


def test_levels_are_those_in_effect_with_the_names_of_kafka(ask):
    logging.getLogger("levels.above.below").setLevel(logging.WARNING)
    expected = {"levels": "INFO", "levels.above": "INFO", "levels.above.below": "WARN"}
    assert levels(ask, *expected) == expected
    assert levels(ask, "root").keys() == {"root"}


@pytest.mark.parametrize(
    ("level", "number"), [("FATAL", 50), ("ERROR", 40), ("WARN", 30), ("INFO", 20), ("DEBUG", 10), ("TRACE", 5)]
)
def test_level_is_set_at_once_and_shown(ask, level, number):
    assert alter(ask, ("levels", level)) is None
    assert logging.getLogger("levels").getEffectiveLevel() == number
    assert levels(ask, "levels") == {"levels": level}


def test_level_of_a_package_holds_for_its_loggers_until_it_is_deleted(ask):
    assert alter(ask, ("levels.above", "DEBUG")) is None
    assert logging.getLogger("levels.above.below").isEnabledFor(logging.DEBUG)
    assert alter(ask, ("levels.above", "", DELETE)) is None
    assert not logging.getLogger("levels.above.below").isEnabledFor(logging.DEBUG)


def test_validated_level_is_not_set(ask):
    assert alter(ask, ("levels", "DEBUG"), validate_only=True) is None
    assert levels(ask, "levels") == {"levels": "INFO"}


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (("no.such.logger", "DEBUG"), ErrorCode.INVALID_CONFIG),
        (("levels.above", "LOUD"), ErrorCode.INVALID_CONFIG),
        (("levels.above", "debug"), ErrorCode.INVALID_CONFIG),
        (("levels.above", "DEBUG", ConfigOperationType.APPEND), ErrorCode.INVALID_REQUEST),
        (("levels.above", "DEBUG", ConfigOperationType.SUBTRACT), ErrorCode.INVALID_REQUEST),
        (("no.such.logger", "", DELETE), ErrorCode.INVALID_CONFIG),
        (("root", "", DELETE), ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_change_leaves_all_levels_of_its_request(ask, operation, code):
    assert alter(ask, ("levels", "DEBUG"), operation) is code
    assert levels(ask, "levels") == {"levels": "INFO"}


def test_levels_of_another_node_are_refused(ask):
    other = ConfigResourceName(BROKER_LOGGER, "2")
    assert alter(ask, ("levels", "DEBUG"), resource=other) is ErrorCode.INVALID_REQUEST
    assert levels(ask, node="2") is ErrorCode.INVALID_REQUEST


def test_levels_cannot_all_be_replaced(ask):
    assert alter(ask, ("levels", "DEBUG"), replaces_all=True) is ErrorCode.INVALID_REQUEST
