"""A real Kafka on this machine: one or three KRaft brokers as processes."""
