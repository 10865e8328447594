"""From a kernel of the loop IR to machine code: `llvm.py` writes, `target.py` compiles, `native.py` calls, `cache.py` keeps."""
