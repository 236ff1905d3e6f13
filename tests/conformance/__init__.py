"""etviz beside the upstream Inspector, on the same artifacts."""
