"""What the user sees: the console, the views of a job, and the ranks' output as labeled lines. Runs in the driver.

console.py         ─ the interface to a terminal or a notebook; start reading here
job_views.py       ─ opens the views of a job, and refreshes them
terminal.py        ─ the view in a terminal
usage_watch.py     ─ reads what ranks use, while somebody looks at a view

What the ranks write and display goes through these:

output.py          ─ the output of one job: lines and rich outputs, in order
line_reader.py     ─ splits what a rank writes into lines
line_merger.py     ─ merges equal lines of several ranks
displays.py        ─ rich outputs, such as figures and tables
display_content.py ─ the content of one of them
screens.py         ─ limits how much a notebook keeps, and survives errors
"""
