"""Settings: ConfigDef, validators, the documents made of them, config providers."""
