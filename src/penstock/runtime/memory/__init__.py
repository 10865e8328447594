"""Memory budgets: rows beyond a budget are spilled as sorted runs, and runs with too much state are refused."""
