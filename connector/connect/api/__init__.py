"""What a plugin is made of: connectors, tasks, records, schemas, errors."""
