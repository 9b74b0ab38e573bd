"""The charts of metrics, in the panel and in the notebook.

panel_charts.py  ─ the small charts of the panel, as part of its state
chart_details.py ─ answers an enlarged chart of the panel, with report_feed.py, chart_table.py and earlier_jobs.py
static_chart.py  ─ draws the charts that stay in the notebook; chart_axes.py puts numbers around them, of ticks.py
"""
