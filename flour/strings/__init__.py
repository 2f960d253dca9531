"""Data structures for operators on text: automata, dictionaries, tables of characters, hashes."""
