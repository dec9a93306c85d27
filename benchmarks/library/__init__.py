"""Penstock's task library beside other task libraries, in one run: speed, processor time, memory, and what is lost."""
