"""What is raised for what Celery has and Penstock has not."""

from __future__ import annotations

from penstock.client.errors import ClientError


class CeleryUnsupported(ClientError, TypeError):
    """A Celery task, call or canvas has something without a counterpart. Nothing was sent."""
