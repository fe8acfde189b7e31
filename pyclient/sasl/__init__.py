"""SASL mechanisms: plugins like those of users, found by the names in `pyclient.sasl_mechanisms`. They know no client and no socket."""
