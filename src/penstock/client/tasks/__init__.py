"""Tasks: functions that are enqueued with typed arguments and run by workers."""
