"""What local clusters, the fake cluster and the simulation share: errors, certificates, TLS and a listener."""
