"""`penstock worker`: one process or several that run an app's tasks."""
