"""What a rank changes in other libraries so that their progress becomes events, a file for each library.

Start reading at `on_import.py`: a library is changed once it is imported, and never imported for that.
"""
