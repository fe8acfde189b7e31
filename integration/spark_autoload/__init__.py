"""Registers ``format("pyclient")``: Spark finds it in installed packages ``pyspark_…`` with a class `DefaultSource`.

It imports little, as every process that looks for formats loads it.
"""
from pyclient.integration.spark.datasource import PyclientDataSource as DefaultSource

__all__ = ["DefaultSource"]
