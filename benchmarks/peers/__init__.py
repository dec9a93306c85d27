"""Penstock beside the other servers that speak SQS, fetched by name and version, under the same load in one run."""
