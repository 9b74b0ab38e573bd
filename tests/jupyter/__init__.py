"""The extension of the Jupyter server."""
