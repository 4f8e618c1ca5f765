"""Between the bytes in Kafka and the data that connectors see."""
