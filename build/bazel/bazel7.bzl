"""What Debian's Bazel 7 needs in order not to download anything.

Its built-in rules need these repositories. Debian has them as packages and names them in
/etc/bazel/bazelrc, but only for modules. This is not a module: Bazel 4 knows only WORKSPACE.
"""

_PLACES = {
    "bazel_features": "tools/features",
    "bazel_skylib": "tools/skylib",
    "platforms": "tools/platforms",
    "rules_cc": "rules/cc",
    "rules_java": "rules/java",
    "rules_license": "rules/license",
    "rules_proto": "rules/proto",
    "rules_python": "rules/python",
}

def is_debian_bazel7():
    """Whether this is Debian's Bazel 7. No Bazel of Debian's reports a version; Bazel 4 lacks this name."""
    return not native.bazel_version and hasattr(native, "package_relative_label")

def bazel7_repositories():
    if not is_debian_bazel7():
        return
    for name, place in _PLACES.items():
        native.local_repository(name = name, path = "/usr/share/bazel/" + place)
