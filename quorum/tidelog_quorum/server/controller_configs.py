"""The settings that administrators ask a controller for: those in the metadata log, and the levels of its loggers."""

from __future__ import annotations

from dataclasses import replace

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.logs.resource import alter_levels, describe_levels
from tidelog_foundation.requests import configs
from tidelog_foundation.requests.configs import BROKER_LOGGER
from tidelog_quorum.server.quorum_controller import QuorumController

_MANY_RESOURCES = 100
"""Changing more takes more than a few milliseconds."""
_OWNER = "controller"


class ControllerConfigs:
    """The requests about settings at one controller. The levels of loggers are its own, by its id (KIP-412)."""

    def __init__(self, controller: QuorumController, node_id: int) -> None:
        self._controller = controller
        self._node_id = node_id

    async def alter(self, request: configs.IncrementalAlterConfigsRequest) -> configs.IncrementalAlterConfigsResponse:
        """Change levels at once, and all other settings as the leader of the quorum.

        Raises:
            TidelogError: NOT_CONTROLLER, other settings at a controller that does not lead.
        """
        of_loggers = [r for r in request.resources if r.resource.type == BROKER_LOGGER]
        own = [self._alter_levels(change, validate_only=request.validate_only) for change in of_loggers]
        others = tuple(r for r in request.resources if r.resource.type != BROKER_LOGGER)
        if of_loggers and not others:
            return configs.IncrementalAlterConfigsResponse(tuple(own))
        # The settings of all brokers affect all partitions.
        is_long = len(others) > _MANY_RESOURCES or any(not r.resource.name for r in others)
        response = await self._controller.handle(replace(request, resources=others), is_long=is_long)
        return configs.IncrementalAlterConfigsResponse((*own, *response.resources))

    async def describe(self, request: configs.DescribeConfigsRequest) -> configs.DescribeConfigsResponse:
        """Describe the levels of this controller's loggers.

        Raises:
            TidelogError: UNSUPPORTED_VERSION for other settings.
        """
        if not all(resource.resource.type == BROKER_LOGGER for resource in request.resources):
            text = "a controller does not know what the nodes' own files set: ask a node"
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, text)
        return configs.DescribeConfigsResponse(tuple(map(self._describe_levels, request.resources)))

    def _alter_levels(
        self, change: configs.ConfigResourceChange, *, validate_only: bool
    ) -> configs.ConfigResourceResult:
        try:
            alter_levels(self._node_id, change, validate_only=validate_only, owner=_OWNER)
        except TidelogError as error:
            return configs.ConfigResourceResult(change.resource, error.detached())
        return configs.ConfigResourceResult(change.resource)

    def _describe_levels(self, wanted: configs.DescribeConfigsResource) -> configs.DescribedConfigResource:
        try:
            levels = describe_levels(self._node_id, wanted.resource.name, _OWNER)
        except TidelogError as error:
            return configs.DescribedConfigResource(wanted.resource, error.detached())
        names = set(wanted.names)
        shown = tuple(level for level in levels if not names or level.name in names)
        return configs.DescribedConfigResource(wanted.resource, configs=shown)
