"""Benchmarks: seeded data, peers, a hand-written reference, and the run that compares them.

workloads   seeded generators of the workloads' tables
reference   the C++ references, compiled when a benchmark starts
peers       the same query in Polars, DuckDB and pandas
contenders  everything that answers one query, Penstock included, behind one call
measure     alternate the contenders, keep the best, check that the answers agree
answers     when two answers are the same
machine     the facts a figure depends on: processor, memory bandwidth, versions
fresh       another interpreter, for figures that can be taken only once in a process
startup     import time and the first query's compile time
memory      working memory beyond input and output
figures     ratios and their targets
suites      what `python -m benchmarks ysb` runs
windows     what `python -m benchmarks ysb --windows` runs
swag        what `python -m benchmarks swag` runs: sliding windows
report      tables for people, JSON for programs
sweep_report  a series of cases as one table
plot        the same as a picture
"""
