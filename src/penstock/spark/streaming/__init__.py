"""Queries that never end, on Spark's Structured Streaming: each row affects the state once, crashes or not.

    rows ── scatter.py ──▶ parcels by shard, and a mark from each task to every shard; fold.py: panes instead of rows
         ── shard.py ────▶ one step of a shard: saved state, rows and marks in; results, state and counts out
         ── operator.py ─▶ the same as Spark calls it, with the state in Spark's own store
         ── frame.py ────▶ query.to_spark(spark, events=streaming_frame); topology.py chooses panes or rows, and says why

A shard holds the keys that hash to it, and runs the query over them as this process would. Time is ours: every
batch, each task tells every shard how far time has come in its rows, so shards without rows close their windows too.
"""
