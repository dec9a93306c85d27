"""The job API over HTTP: routes, access, streams, and the document that describes them."""
