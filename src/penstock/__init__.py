"""Durable queues and jobs for Python, with an SQS-compatible server."""

__version__ = "0.1.0"
"""Written here because to look it up among installed packages takes longer than to import all of this."""
