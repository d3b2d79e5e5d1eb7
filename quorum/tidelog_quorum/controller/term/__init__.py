"""A controller's terms: election, handling of requests, and their answers after commit."""
