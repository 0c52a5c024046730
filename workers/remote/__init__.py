"""Models that a server elsewhere computes: the same requests, the same outputs."""
