"""Which process owns a SQLite file: locks, the record of the owner, and where to find it. Clients load this too."""
