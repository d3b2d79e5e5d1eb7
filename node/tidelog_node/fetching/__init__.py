"""Fetch requests and responses, independent of the listener."""

from tidelog_node.fetching.messages import CurrentLeader, FetchRequest, FetchResponse, FetchResult, SessionStep
from tidelog_node.replication.fetch_session import FetchSpec, PartitionKey, TopicRef
