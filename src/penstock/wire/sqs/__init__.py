"""Amazon SQS on the wire: its shapes, its two protocols, its errors, digests, names and handles."""
