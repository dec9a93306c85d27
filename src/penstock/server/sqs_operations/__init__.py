"""What each SQS operation does with the engine, by family: queues, permissions, messages, message moves."""
