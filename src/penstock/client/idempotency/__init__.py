"""Idempotency for any consumer or function: what ran is recorded by a key, and is not run again."""
