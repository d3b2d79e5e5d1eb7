"""A replica's log, term, vote and snapshots on disk: RocksDB and snapshot files, written by one thread."""
