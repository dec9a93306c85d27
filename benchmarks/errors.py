"""Why a benchmark was not run to its end."""

from __future__ import annotations


class BenchmarkFailed(Exception):
    """There is no result; the message tells the user why."""


class StoreNotOurs(BenchmarkFailed):
    """The store holds queues that no benchmark made: it is somebody's, and is left alone."""


class ServerUnavailable(BenchmarkFailed):
    """A server that is to be measured cannot be reached, started or used."""


class WorkFailed(BenchmarkFailed):
    """A store or a server answered otherwise than it must, so what was measured means nothing."""
