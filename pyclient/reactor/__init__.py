"""The reactor: what a client waits on. Sockets, deadlines, posted calls, and coroutines. Independent of Kafka."""
