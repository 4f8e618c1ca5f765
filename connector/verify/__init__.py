"""The history checker: recorded events in, named anomalies out."""
