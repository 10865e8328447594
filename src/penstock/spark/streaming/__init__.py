"""Unbounded queries on Spark's Structured Streaming: each row affects the state exactly once, also after a crash.

    rows ── shuffle_write.py ─▶ payloads by shard, and a mark from each task to every shard; fold.py: panes instead of rows
         ── shard.py ─────────▶ one step of a shard: saved state, rows and marks in; results, state and counts out
         ── operator.py ──────▶ the Spark callable around it, with the state in Spark's state store
         ── frame.py ─────────▶ query.to_spark(spark, events=streaming_frame); topology.py chooses panes or rows

A shard holds the keys that hash to it, and runs the query over them as a local session would. The watermark is
Penstock's, not Spark's: in every batch, each task sends the latest time of its rows to every shard, so shards without
rows close their windows too.
"""
