"""Programs: types, nodes, operators, errors, and where each node comes from."""
