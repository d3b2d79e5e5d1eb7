"""Log compaction: keeps the last record of each key in sealed segments, while the log serves appends and reads."""
