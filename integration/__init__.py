"""pyclient inside other systems: Spark, metrics exporters. Each part is imported only by those who use that system."""
