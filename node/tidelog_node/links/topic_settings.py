"""Lets the settings of mirror topics follow those of the source, every ``topic.config.sync.ms``.

The leader of a topic's first partition reads the settings and reports them when they differ. The controller changes
them, and refuses values that this cluster does not have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch
from tidelog_foundation.link_settings import MAX_SETTINGS_REPORTS, settings_to_change
from tidelog_foundation.requests.links import LinkSetting, MirrorSettingsReport, ReportMirrorSettingsRequest
from tidelog_node.links.link_worker import LinkWorker
from tidelog_node.links.mirrors import Mirror
from tidelog_node.links.node import LinkNode

logger = logging.getLogger(__name__)
_REPORT_TIMEOUT_S: Final = 5.0


class TopicSettings:
    """The task of one link that copies settings of topics."""

    def __init__(self, worker: LinkWorker, node: LinkNode, broker_epoch: Callable[[], BrokerEpoch]) -> None:
        self._worker = worker
        self._node = node
        self._broker_epoch = broker_epoch
        self._failures: dict[str, str] = {}
        """The last error of each topic, and under an empty name that of the link."""

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            await asyncio.sleep(self._worker.config.topic_config_sync_ms / 1000)
            await self.copy()

    async def copy(self) -> None:
        """Copy the settings of all topics whose first partition this node leads."""
        mirrors = {m.partition.topic: m for (_, index), m in self._worker.mirrors.items() if index == 0}
        self._failures = {name: text for name, text in self._failures.items() if not name or name in mirrors}
        try:
            names = sorted(mirrors)
            for first in range(0, len(names), MAX_SETTINGS_REPORTS):
                await self._copy(names[first : first + MAX_SETTINGS_REPORTS], mirrors)
        except TidelogError as error:
            self._note("", error)
        else:
            self._note("", None)

    async def _copy(self, topics: Sequence[str], mirrors: Mapping[str, Mirror]) -> None:
        found, errors = await self._worker.source.settings_of_topics(topics)
        reports = []
        for name in topics:
            mirror = mirrors[name]
            if name not in found:
                continue
            own = self._node.metadata.image.config_of_topic(name)
            if mirror.is_current and settings_to_change(own, found[name]):
                settings = tuple(LinkSetting(*setting) for setting in sorted(found[name].items()))
                topic_id = mirror.partition.topic_id
                reports.append(MirrorSettingsReport(topic_id, mirror.term.leader_epoch, settings))
            else:
                self._note(name, None)
        if reports:
            request = ReportMirrorSettingsRequest(self._node.broker_id, self._broker_epoch(), tuple(reports))
            response = await self._node.controller.ask(request, _REPORT_TIMEOUT_S)
            errors |= {r.topic: r.error for r in response.topics if r.error is not None}
        for name, error in errors.items():
            self._note(name, error)

    def _note(self, name: str, error: TidelogError | None) -> None:
        """Log the first of several equal failures."""
        text = None if error is None else str(error)
        if text is None:
            self._failures.pop(name, None)
        elif self._failures.get(name) != text:
            self._failures[name] = text
            subject = f"of topic {name} " if name else ""
            logger.warning(
                "Settings %swere not copied over link %s, retrying: %s", subject, self._worker.link.name, text
            )
