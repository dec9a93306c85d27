# Made of penstock/client/verbs by scripts/make_sync.py. Change that, and run the script.
"""The verbs of the job API as blocking methods, made of the async ones."""
