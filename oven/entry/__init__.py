"""How Python calls a plan: machine code that reads rows where the interpreter keeps them."""
