"""The expression language, shared by plan and IR: grammar (`nodes.py`), types (`typing.py`), semantics (`evaluate.py`)."""
