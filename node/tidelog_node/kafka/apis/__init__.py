"""What the listener serves: one module per family of APIs, which translates between the bytes and the handlers."""
