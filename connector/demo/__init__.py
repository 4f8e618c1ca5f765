"""The demonstration: a topic grows under load twice over, once with stock clients and once with keyorder's."""
