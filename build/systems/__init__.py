"""`build.py systems`: tries our wheel on other systems, machines and Pythons.

Each kind of system is a module. Its `tried` makes what it needs, yields a Row for each check, and
raises Refusal if it cannot go on.
"""
