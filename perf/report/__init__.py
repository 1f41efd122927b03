"""Reports: verdicts and records in, text out."""
