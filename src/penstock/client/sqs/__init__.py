"""Consumers of plain SQS queues, on AWS or any server that speaks SQS."""
