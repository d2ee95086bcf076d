"""What Debian's Bazel 4.2.3 needs in order not to download anything.

It looks for four repositories of rules, but uses only a few of their names. Here each
name is one of Bazel's own rules. A newer Bazel has the repositories built in or as
modules; it reports its version, and this file does nothing. Debian's Bazel 7 reports
none, and has a file of its own.
"""

load("//build/bazel:bazel7.bzl", "is_debian_bazel7")

def _rules_impl(ctx):
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    for path, content in ctx.attr.files.items():
        ctx.file(path, content)

_rules = repository_rule(
    implementation = _rules_impl,
    attrs = {"files": attr.string_dict(doc = "Path to content.")},
)

def _native(names):
    return "".join(["%s = native.%s\n" % (name, name) for name in names])

_CC_RULES = ["cc_binary", "cc_import", "cc_library", "cc_proto_library", "cc_test", "cc_toolchain", "cc_toolchain_suite", "fdo_prefetch_hints", "fdo_profile", "objc_import", "objc_library"]
_JAVA_RULES = ["java_binary", "java_import", "java_library", "java_lite_proto_library", "java_package_configuration", "java_plugin", "java_proto_library", "java_runtime", "java_test", "java_toolchain"]

def bazel4_repositories():
    if native.bazel_version or is_debian_bazel7():
        return
    _rules(name = "rules_cc", files = {
        "BUILD": "",
        "cc/BUILD": "",
        "cc/defs.bzl": _native(_CC_RULES),
    })
    _rules(name = "rules_java", files = {
        "BUILD": "",
        "java/BUILD": "",
        "java/defs.bzl": _native(_JAVA_RULES),
    })
    _rules(name = "rules_proto", files = {
        "BUILD": "",
        "proto/BUILD": "",
        "proto/defs.bzl": _native(["proto_lang_toolchain", "proto_library"]),
    })
    _rules(name = "remote_coverage_tools", files = {
        "BUILD": "filegroup(name = \"coverage_report_generator\", visibility = [\"//visibility:public\"])\n",
    })
