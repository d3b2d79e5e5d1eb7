"""Small programs with transactions: exactly once from topic to topic, and writes to several topics as one."""
