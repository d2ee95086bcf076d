"""The options that all C++ of this repository is compiled with."""

COPTS = [
    "-fexceptions",
    "-fno-strict-aliasing",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
]
