"""Files for other tools: Chrome traces for Perfetto, graphs and node data for Model Explorer."""
