"""The parts that the cores of all coordinators share: events and commands of a shard, its records, Kafka's encoding."""
