"""The connections between replicas: streams over gRPC, and the messages on them."""
