"""Makes ``format("pyclient")`` known: Spark looks for installed packages called ``pyspark_…`` with a class `DefaultSource`.

Light on purpose: it is imported in every process that looks for formats.
"""
from pyclient.integration.spark.datasource import PyclientDataSource as DefaultSource

__all__ = ["DefaultSource"]
