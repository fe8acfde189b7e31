"""Installed as ``pyspark_pyclient``: Spark looks at top-level modules of that prefix for a class ``DefaultSource``.

Imported by every process that looks a format up, so it stays light and never fails.
"""
