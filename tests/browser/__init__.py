"""Tests that drive a real JupyterLab in a real Chromium, as a user would.

`server` starts JupyterLab, `chromium` finds and starts the browser, `network` keeps the page offline,
`notebooks` writes the notebook that a test needs, `lab` is what a test does in JupyterLab.
The fixtures in `conftest` put them together.
"""
