"""The subcommands of build.py, a module each."""
