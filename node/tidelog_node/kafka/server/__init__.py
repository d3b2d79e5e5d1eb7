"""The Kafka listeners of a node: connections, the order of their responses, and their limits on memory and time."""
