"""The part of the panel with which the user changes a training that runs.

panel_controls.py ─ its buttons and fields
"""
