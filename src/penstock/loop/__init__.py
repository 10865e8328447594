"""The loop IR: grammar (`nodes.py`), builder (`build.py`), semantics (`interpret.py`) and calling convention (`abi.py`)."""
