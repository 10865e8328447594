"""Measure this machine: its processor and memory, and the join algorithms that `algorithm="auto"` chooses from.

`penstock doctor` prints the facts; `penstock doctor --calibrate` trains the decision trees of the joins.

machine    processor, memory bandwidth, versions
timing     a call's time by the clock and by processor time
workloads  two streams of keys over one window, and when their rows arrive
points     the workloads that the trees are trained on
field      the eight join algorithms, compiled and ready to run
simulate   one algorithm on one workload, on a clock that jumps instead of waiting
ordered    the same for pairs in the order of results
calibrate  all of that, and the trees trained on it
"""
