"""The job API on the wire: shapes of requests and answers, lease tokens, problems. No networking."""
