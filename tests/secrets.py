"""What may stand in nothing that is shown."""
MARKER = "marker-secret"
