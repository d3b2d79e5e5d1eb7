"""Kafka's binary protocol as a second front door: unmodified Kafka clients, and fetches from node to node."""
