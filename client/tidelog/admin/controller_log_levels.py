"""The levels of a controller's loggers, which only the controller itself knows (KIP-412)."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.admin.configs import AlterConfigOpType, ConfigEntry, ConfigResource, alter_request, describe_request
from tidelog.admin.quorum_calls import Quorum
from tidelog.admin.resources import ResourceType
from tidelog.cluster.answers import error_of


async def describe_log_levels(quorum: Quorum, controller_id: int, timeout_s: float) -> dict[str, str]:
    """Return the levels of a controller by the names of its loggers."""
    request = describe_request([ConfigResource(ResourceType.BROKER_LOGGER, str(controller_id))])
    response = await quorum.ask_admin(controller_id, lambda s, t: s.DescribeConfigs(request, timeout=t), timeout_s)
    [resource] = response.resources
    if (error := error_of(resource)) is not None:
        raise error
    return {config.name: config.value for config in resource.configs}


async def alter_log_levels(
    quorum: Quorum, controller_id: int, levels: Mapping[str, str | None], timeout_s: float
) -> None:
    """Set levels of a controller; None removes one."""
    changes = [
        ConfigEntry(
            name,
            level,
            incremental_operation=AlterConfigOpType.DELETE if level is None else AlterConfigOpType.SET,
        )
        for name, level in levels.items()
    ]
    resource = ConfigResource(ResourceType.BROKER_LOGGER, str(controller_id), incremental_configs=changes)
    request = alter_request([resource], timeout_s * 1000, validate_only=False)
    response = await quorum.ask_admin(
        controller_id, lambda s, t: s.IncrementalAlterConfigs(request, timeout=t), timeout_s
    )
    [result] = response.resources
    if (error := error_of(result)) is not None:
        raise error
