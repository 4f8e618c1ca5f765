"""`keyorder.metrics`: producers and consumers in an application's own Prometheus registry. Needs `keyorder[metrics]`."""

from .connector.extras import needs_extra

with needs_extra("metrics"):
    from .connector.monitoring.client_metrics import ClientCollector

__all__ = ["ClientCollector"]
