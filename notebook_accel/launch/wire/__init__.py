"""Code for both ends of a socket: messages, the payload of a call, its pickles, and the state that ranks mirror.

Start reading at `stream.py`; `event_loop.py` waits for messages.
"""
