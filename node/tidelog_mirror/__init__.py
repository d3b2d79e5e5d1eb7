"""MirrorMaker 2's work: copies topics, groups' offsets and ACLs between clusters that speak Kafka's protocol."""
