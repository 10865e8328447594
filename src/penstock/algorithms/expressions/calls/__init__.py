"""The lowering of each scalar function to the loop IR; `catalogue.py` lists all of them."""
