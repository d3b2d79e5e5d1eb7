"""The rules of a node's gRPC methods, which correspond to those of Kafka's APIs."""

from tidelog_node.server.authorization.rules import RULES, STREAMS
