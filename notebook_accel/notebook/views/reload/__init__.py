"""Keeps a job in its cell when the page is reloaded: the kernel gives the page a new panel, and at the end the HTML.

    page_widget.py      a widget whose messages arrive while a cell runs: the panel, the table of jobs
    control_channel.py  receives its messages on the kernel's control channel
    page_watch.py       decides whether a page still shows it
    ended_panels.py     keeps the panels of ended jobs until a page has stored their HTML

A page that is reloaded while a cell runs can't ask the kernel for its widgets, and no longer knows which output belongs
to which display ID. It does accept new widgets at any time, so the kernel opens the panel again, and the panel's script
puts it, and at the end the HTML, into the notebook's output.
"""
