"""What is the same at both ends of a socket: messages, a call's payload, its pickles, the state that ranks mirror.

Start reading at `stream.py`.
"""
