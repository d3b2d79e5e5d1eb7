"""Whether a topic still exists under its id. A node answers from its own metadata, which may lag behind."""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.cluster import ClusterClient
from tidelog.cluster.loop_time import now_ms
from tidelog.cluster.metadata import NO_TOPIC_ID
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId, TopicId

_ANSWER_MS: Final = 3_000
_GRACE_MS: Final = 3_000
"""The time in which nodes that answer learn what a node that does not answer knew before."""


async def find_topic_id(client: ClusterClient, topic: str, known: TopicId, *, timeout_ms: float) -> TopicId:
    """Return ``known`` if any node has the topic with this id; or else the id under which nodes have it now,
    NO_TOPIC_ID without a topic.

    An id is unique, and a deleted topic does not return. So a topic is gone if no node has it any more. Nodes that do
    not answer are asked again for some seconds.

    Raises:
        TidelogError: no node answers.
    """
    begin = now_ms()
    attempt = 0
    while True:
        brokers = list(client.metadata.brokers)
        answers = await asyncio.gather(*(_topic_id_at(client, broker, topic, timeout_ms) for broker in brokers))
        ids = {answer for answer in answers if answer is not None}
        if known in ids:
            return known
        attempt += 1
        if (ids and None not in answers) or now_ms() - begin >= min(_GRACE_MS, timeout_ms):
            break
        await asyncio.sleep(client.backoff.wait_ms(attempt) / 1000)
    if not ids:
        raise error_for(ErrorCode._ALL_BROKERS_DOWN, f'no broker answered whether topic "{topic}" exists')
    return max(ids)


async def _topic_id_at(client: ClusterClient, broker: BrokerId, topic: str, timeout_ms: float) -> TopicId | None:
    request = pb.GetMetadataRequest(topics=[topic])
    timeout_s = min(timeout_ms, _ANSWER_MS) / 1000
    try:
        response = await client.connection(broker).call(lambda c: c.log.GetMetadata(request, timeout=timeout_s))
    except TidelogError:
        return None
    ids = [TopicId(each.topic_id) for each in response.topics if not each.HasField("error")]
    return ids[0] if ids else NO_TOPIC_ID
