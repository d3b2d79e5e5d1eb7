"""File operations of the log, and the meaning of their errors."""
