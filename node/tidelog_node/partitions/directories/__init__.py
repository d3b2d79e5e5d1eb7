"""The log directories of a node: the logs in them, their checkpoints, and moves of replicas between them."""
