"""`python -m benchmarks live`: the running query, pushed buffer by buffer, and its latency.

feed      seeded rows, and the buffers they are pushed in
queries   the seven queries, and when each result is complete
pushing   the ways to push: in the caller's thread, in the background, by a writer
points    what one measurement asks, and what it found
measure   throughput in a closed loop, latency in an open loop, answers against `collect`
worker    a process that measures one build of Penstock
builds    the build at hand and a baseline: a wheel or a git revision, installed into a folder of its own
suite     which points a run consists of, builds in turns
applications  TiLT's eight applications and YSB over buffer size
holding   pushes of 100 rows while few and many rows are held
report    tables, figures, JSON and the plot
peers     the same queries in other stream processors

`feed` to `worker` import nothing of Penstock but its public names, so that they can measure older builds.
"""
