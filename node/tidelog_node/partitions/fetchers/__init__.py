"""The replica fetchers of a node: one task per leader, which copies the records of the partitions that it leads."""
