"""The charts of metrics in the panel.

panel_charts.py  ─ the small charts, as part of the panel's state
chart_details.py ─ answers an enlarged chart, with report_feed.py, chart_table.py and earlier_jobs.py
"""
