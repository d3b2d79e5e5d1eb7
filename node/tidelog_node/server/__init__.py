"""The node's process: its configuration, listeners, registration with the controllers, and metadata."""

from tidelog_node.server.config import NodeConfig

__all__ = ["NodeConfig"]
