from __future__ import annotations

from tests.support.postgres_fixture import postgres_server
from tests.support.sqs_services import moto_sqs, ours, postgres_sqs, quick_heartbeats, sqlite_sqs, sqs

__all__ = ["moto_sqs", "ours", "postgres_server", "postgres_sqs", "quick_heartbeats", "sqlite_sqs", "sqs"]
