"""How the cost of a request grows: with queues, backlog, connections, message size and nodes, and under a flood."""
