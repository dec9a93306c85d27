"""Each library as a producer and a worker. Peers run in an environment of their own, without Penstock."""
