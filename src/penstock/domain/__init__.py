"""The rules of queues and messages: values, limits, errors, time and ids, with no I/O."""
