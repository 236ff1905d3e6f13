"""What people look at: the widget, its payload, reports and figures."""
