"""HTTP and everything around it; the one place that builds objects."""
