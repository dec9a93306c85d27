"""The verbs of the job API as async methods. `penstock.client.sync` is made of these by `scripts/make_sync.py`."""
