"""A node's own side of the Kafka listeners of others: connections, and the fetches of followers over them."""
