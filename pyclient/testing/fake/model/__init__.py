"""The modelled cluster: brokers, topics, logs, groups and logins. Knows no sockets and no request handlers."""
