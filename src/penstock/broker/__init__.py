"""Use cases: what the service does with queues and messages, whatever the protocol and the store."""
