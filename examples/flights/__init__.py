"""The main job: flights of New York 2013 through Kafka and PySpark, and back. Run by ``python -m examples.flights``."""
