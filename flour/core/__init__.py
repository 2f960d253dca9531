"""What a program is: types, nodes, operators, errors, and where each node comes from."""
