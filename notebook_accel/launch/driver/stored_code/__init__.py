"""The code that is stored with a job that saves checkpoints, so that another kernel can launch it again.

saving.py             ─ collects it at the launch
definition_sources.py ─ the source of the notebook's definitions, and what has changed in it since
"""
