"""Other libraries and frameworks, each in a module of its own that loads them."""
