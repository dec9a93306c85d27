"""Benchmarks of the job service, beside Celery and RQ."""
