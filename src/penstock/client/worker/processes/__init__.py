"""Child processes that run sync task functions, so that one that hangs can be killed."""
