"""The Kafka edge: control topics, controller, producer, consumer, admin, command line."""
