"""Durable queues and jobs for Python, with an SQS-compatible server."""

from importlib.metadata import version

__version__ = version("penstock")
