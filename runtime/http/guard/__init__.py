"""Guards: clients' rights, rates and budgets."""
