"""The settings of a project that uses Penstock."""
