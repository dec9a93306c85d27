"""The lab: failures on purpose, what happened in them, whether the rules held, and a report that shows it.

A run of a scenario leaves a history (`history`). Checkers judge it, apart from what ran (`checkers`), and a report
draws it (`report`). The lab talks to queues as any client does: only its
own server (`embedded_server`) knows the server.
"""
