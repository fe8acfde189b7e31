"""The modelled cluster: brokers, topics, logs, groups and logins. Independent of sockets and request handlers."""
