"""A small program with transactions: writes to several topics as one."""
