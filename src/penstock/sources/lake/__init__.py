"""Tables of a lake: their own metadata says which files they are, which rows are gone, and what columns mean."""
