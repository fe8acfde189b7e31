"""The version of this package. pyproject.toml reads it from here, so keep it a plain literal."""
__version__ = "0.1.0"
