"""The durable truth: one port, and its implementations on SQLite and PostgreSQL."""
