"""The group coordinator as a pure state machine: a shard holds the groups of one partition of __consumer_offsets."""
