"""The group coordinator as a pure state machine. A shard has the groups of one partition of __consumer_offsets."""
