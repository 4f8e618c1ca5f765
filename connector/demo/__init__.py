"""The demo: the same load through stock clients and through keyorder while the topic grows."""
