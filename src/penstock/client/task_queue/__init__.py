"""Many tasks of one entity on an SQS FIFO queue, each in a message group of its own."""
