"""How cost grows: a model fitted to small runs, checked on a larger one, and a simulation of what never fits here."""
