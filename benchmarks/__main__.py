"""`python -m benchmarks` runs one of the benchmarks."""

from benchmarks.cli.app import app

if __name__ == "__main__":
    app()
