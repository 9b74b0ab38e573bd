"""What the panel tells of a job beyond its ranks.

run_text.py ─ facts about the run, and how it is getting on in a few words
"""
