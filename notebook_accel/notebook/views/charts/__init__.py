"""The charts that stay in the notebook.

static_chart.py ─ draws one; chart_axes.py puts numbers around it, of ticks.py
"""
