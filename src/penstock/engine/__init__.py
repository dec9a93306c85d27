"""What the system does with queues, messages and jobs, whatever the protocol and the store."""

from penstock.engine.engine import Engine

__all__ = ["Engine"]
