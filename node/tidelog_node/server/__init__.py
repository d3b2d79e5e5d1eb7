"""The node's process: configuration, listener, its standing with the controllers, the metadata it follows."""

from tidelog_node.server.config import NodeConfig

__all__ = ["NodeConfig"]
