"""What programs import to use Penstock: a client of the job API by URL, for async and sync code."""
