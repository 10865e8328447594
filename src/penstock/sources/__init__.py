"""Sources of rows: Arrow data, files, lake tables, live folders and Kafka. `bound.py` defines their interface."""
