"""The flights demo: real records through a crash, read back with Spark and checked one by one."""
