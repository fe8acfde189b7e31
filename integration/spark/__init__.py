"""Kafka as a source and sink of PySpark, without any JAR."""
