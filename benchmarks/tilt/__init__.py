"""`python -m benchmarks tilt`: the operators and applications of TiLT over regular signals.

`applications.py` says what is asked, `keyed.py` the same of many keys and stored times, `kernel.py` runs Penstock's kernel alone into recycled memory, `unfused.py`
its operators one after the other, `peers.py` asks other libraries, `memory.py` the machine, `suite.py` puts them side by side and says what
must be reached.
"""
