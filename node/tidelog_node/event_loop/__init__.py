"""Shared services of a node's event loop: clocks, the decompression thread and pending answers."""

from tidelog_node.event_loop.clock import Clock, SystemClock
from tidelog_node.event_loop.decoding import INLINE_BYTES, MAX_INLINE_SIZE, DecodingThread
from tidelog_node.event_loop.pending import Pending
