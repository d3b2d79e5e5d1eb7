"""A node's client for the Kafka listeners of other nodes: connections, and followers' fetches over them."""
