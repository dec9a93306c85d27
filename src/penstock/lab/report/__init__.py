"""Reports: one HTML file for each run and an index of all, without scripts, fonts or anything from a network."""
