"""The view: widget, payload, reports and figures."""
