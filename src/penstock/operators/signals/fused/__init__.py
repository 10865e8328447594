"""A signal expression over stored times in one kernel, from change to change of what it reads."""
