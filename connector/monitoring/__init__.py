"""What a controller shows of the cluster that it looks after: metrics, and whether it lives. Needs `keyorder[metrics]`."""
