"""What `caption-assets` does, one module per command; cli.py holds the arguments."""
