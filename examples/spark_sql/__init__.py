"""Programs of Spark SQL on topics: what they were with Spark's own connector, with another name of the format."""
