"""The periodic removal of expired delegation tokens by the leading controller."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import NoReturn

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.delegation_tokens import RemoveExpiredTokens
from tidelog_quorum.server.quorum_controller import QuorumController

logger = logging.getLogger(__name__)


async def watch_expired_tokens(quorum: QuorumController, interval_ms: int) -> NoReturn:
    """Remove expired tokens at an interval while this controller leads."""
    while True:
        await asyncio.sleep(interval_ms / 1_000)
        if not (quorum.leader.is_self and quorum.controller.committed.delegation_tokens):
            continue
        try:
            while removed := await quorum.handle(RemoveExpiredTokens(wall_clock_ms())):
                logger.info("%d expired delegation tokens are removed", removed)
        except TidelogError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                logger.warning("Expired delegation tokens cannot be removed now: %s", error)


def wall_clock_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
