"""The running platform as a fixture."""
