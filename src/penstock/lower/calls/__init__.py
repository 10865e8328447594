"""How each scalar function is written in the loop IR; `catalogue.py` lists them all."""
