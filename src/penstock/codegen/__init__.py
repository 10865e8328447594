"""Compile kernels of the loop IR: `llvm.py` emits LLVM, `target.py` compiles, `native.py` calls, `cache.py` caches."""
