"""The cluster links of a node: its leaders of mirror partitions fetch from other clusters."""
