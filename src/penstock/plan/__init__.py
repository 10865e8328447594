"""The logical plan: grammar (`nodes.py`), the schema of each node (`schema.py`), serialisation to JSON (`codec.py`)."""
