"""The operators of the physical plan, one folder each: kernels, driver, state. `build.py` of each joins driver and kernels."""
