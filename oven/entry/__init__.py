"""Entries from Python: machine code that reads rows where the interpreter keeps them."""
