"""The loop IR: `nodes.py` is its grammar, `build.py` its pen, `interpret.py` its meaning; `abi.py` is how kernels are called."""
