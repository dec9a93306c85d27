"""`python -m penstock` does what `penstock` does."""

from penstock.cli import main

if __name__ == "__main__":
    main()
