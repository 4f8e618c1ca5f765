"""What the clients of one process share to reach one cluster as one user."""

from .cluster_link import ClusterLink
from .control_feed import ControlSubscription

__all__ = ["ClusterLink", "ControlSubscription"]
