"""What operators on text need: automata, dictionaries, tables of characters, hashes."""
