"""Memory of runs: what failed where and when, and what that says about the failure at hand."""
