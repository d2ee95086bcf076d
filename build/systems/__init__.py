"""Our wheel on systems, machines and Pythons other than this one: `build.py systems`.

A module is one kind of system. Its `tried` makes what it needs, yields a Row for each check, and
raises Refusal where it cannot go on.
"""
