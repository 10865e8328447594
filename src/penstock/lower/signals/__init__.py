"""Lower temporal expressions (signals) to kernels."""
