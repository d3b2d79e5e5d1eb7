"""Client quotas without I/O and clock: rates over sampled windows, token buckets, and the limits of clients."""
