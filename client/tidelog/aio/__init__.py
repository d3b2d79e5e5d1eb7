"""Producer, consumer and admin client for asyncio: the names of the blocking ones, whose methods are awaited.

Each is a thin layer over the core and the network thread that its blocking counterpart has: nothing of it blocks the
application's event loop, which may be any (uvloop's too), and none has a thread of its own. A client belongs to the
loop that it was made in.
"""

from tidelog.aio.admin_client import AdminClient
from tidelog.aio.confluent import AIOConsumer, AIOProducer
from tidelog.aio.consumer import Consumer
from tidelog.aio.producer import Producer
from tidelog.aio.serializing import AsyncDeserializingConsumer, AsyncSerializingProducer

__all__ = [
    "AIOConsumer",
    "AIOProducer",
    "AdminClient",
    "AsyncDeserializingConsumer",
    "AsyncSerializingProducer",
    "Consumer",
    "Producer",
]
