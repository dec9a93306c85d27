"""Celery and RQ on Redis, as programs that run in an environment of their own: they import nothing of Penstock."""
