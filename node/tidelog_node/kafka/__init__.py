"""Kafka's binary protocol: the listener for unmodified Kafka clients, and fetches between nodes."""
