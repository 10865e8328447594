"""Where rows come from: Arrow data, files, tables of a lake, live folders and Kafka. `bound.py` is what a query asks of them."""
