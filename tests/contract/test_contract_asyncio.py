"""The clients for asyncio against the fake and a real cluster: what is written is read, committed and administered."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog import NewTopic, TopicPartition
from tidelog.aio import AdminClient, Consumer, Producer

Deployment = Any


def test_clients_for_asyncio_share_one_loop(cluster: Deployment) -> None:
    async def test() -> None:
        servers = cluster.settings
        async with AdminClient(servers) as admin, Producer(servers) as producer:
            await admin.create_topics([NewTopic("aio", 2, 1)])["aio"]
            deliveries = [await producer.produce("aio", f"{n}", partition=n % 2) for n in range(100)]
            assert [(await delivery).offset() for delivery in deliveries] == [n // 2 for n in range(100)]
            seen: list[int] = []
            async with Consumer({**servers, "group.id": "aio", "auto.offset.reset": "earliest"}) as consumer:
                consumer.subscribe(["aio"])
                async for message in consumer:
                    seen.append(int(message.value()))
                    if len(seen) == 100:
                        break
            assert sorted(seen) == list(range(100))
            lags = await admin.consumer_group_lags(["aio"])["aio"]
            assert [(lag.partition, lag.committed_offset, lag.lag) for lag in lags] == [(0, 50, 0), (1, 50, 0)]
            where = TopicPartition("aio", 0, 10)
            assert (await admin.delete_records([where])[where]).low_watermark == 10

    asyncio.run(test())
