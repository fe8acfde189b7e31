"""SASL mechanisms: plugins like those of users, found in `pyclient.sasl_mechanisms`. They know no client, no socket."""
