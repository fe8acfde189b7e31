"""Values that `Admin` takes and returns, by what they describe; users import them from `pyclient.admin`."""
