"""Use cases of the job service, whatever the protocol and the store."""
