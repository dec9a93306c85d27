"""Job verbs as transaction scripts, written once for both stores: what is read, decided and written, without I/O."""
