"""The store on PostgreSQL, for any number of nodes."""

from penstock.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
