"""The metrics of a job: every report, and the charts that are drawn of them.

report_log.py    ─ every report, for `job.metrics`
metric_series.py ─ every value of one metric, for an enlarged chart
metric_values.py ─ the values at one step or in one bin
metric_chart.py  ─ a metric by step, merged over ranks and thinned
job_charts.py    ─ all charts of a job
metric_text.py   ─ a chart in words: last, best, least and most, with their steps
"""
