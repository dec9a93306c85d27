"""The two tables of check-before-doing, on SQLite or DynamoDB, and the ledger of the calls that were made."""
