"""Settings of queues as the tables keep them."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from penstock.domain.job_queue import JobQueueSettings

encode_settings = msgspec.json.Encoder().encode
decode_settings = lru_cache(maxsize=1_024)(msgspec.json.Decoder(JobQueueSettings).decode)
"""Settings change rarely, and are looked at with every step of a job."""
