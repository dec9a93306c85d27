"""Benchmarks: how fast the stores are, beside what the disk allows and what others do, in one and the same run."""
