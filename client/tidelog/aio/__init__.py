"""Producer, consumer and admin client for asyncio, with the names of the blocking clients.

Each is a thin layer over the core and the network thread of its blocking counterpart. It never blocks the application's
event loop, which may be any (uvloop's too), and has no thread of its own. A client belongs to the loop in which it was
created.
"""

from tidelog.aio.admin_client import AdminClient
from tidelog.aio.consumer import Consumer
from tidelog.aio.producer import Producer
from tidelog.aio.serializing import AIOConsumer, AIOProducer, AsyncDeserializingConsumer, AsyncSerializingProducer

__all__ = [
    "AIOConsumer",
    "AIOProducer",
    "AdminClient",
    "AsyncDeserializingConsumer",
    "AsyncSerializingProducer",
    "Consumer",
    "Producer",
]
