"""What the client runs itself: the engine in this process, or the owner of an SQLite file."""
