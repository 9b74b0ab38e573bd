"""Code for both ends of a socket: messages, the payload of a call, its pickles, and the state that ranks mirror.

stream.py          ─ the format of messages; start reading here
event_loop.py      ─ waits for messages of many ranks, and for other threads
rank_streams.py    ─ reads the events and the output of one rank
pipe_marks.py      ─ marks in that output, for what was displayed between two lines
constants.py       ─ times and names that both ends must agree on
payload.py         ─ the payload of a call: in the message, or in memory files
pickling.py        ─ the picklers for calls, and for the values that they return
unpicklable.py     ─ names what can't be pickled, and what to do instead
mirrored/          ─ what ranks take on from the notebook: paths, random states, settings of libraries, definitions
notebook_names.py  ─ names that the notebook defines, for a rank that lacks one
map_call.py        ─ what a rank of a map runs, and the form of its items and values
stack_frames.py    ─ frames of a stack: which are the user's, their threads and collectives, and their text
cell_names.py      ─ `In[3]` in place of a cell's file
plain_text.py      ─ the user's text without what can't be drawn, and of a bounded length
"""
