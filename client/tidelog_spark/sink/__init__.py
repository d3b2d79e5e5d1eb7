"""The sink: Arrow batches to records, exactly once or at least once. `protocol` has the rules of exactly once."""
