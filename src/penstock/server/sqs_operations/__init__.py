"""What each SQS operation does with the broker, by family: queues, permissions, messages, message moves."""
