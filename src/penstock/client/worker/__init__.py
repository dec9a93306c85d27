"""Workers: they take jobs of their queues, run the tasks, and report."""
