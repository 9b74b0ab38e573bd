"""The lines that the ranks of a job have written, all of them.

log_lines.py    ─ a line, and how it is stored
output_log.py   ─ every line in the order of arrival: in a file, and in memory until it is there
log_scan.py     ─ reads lines that match, from the end towards the beginning
log_text.py     ─ the text of many lines, for the user
"""
