"""Bytes to shapes and back, without any networking."""
