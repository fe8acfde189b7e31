"""pyclient inside other systems: Spark. Imported only by those who use it."""
