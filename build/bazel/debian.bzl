"""Abseil, GoogleTest and Google Benchmark, from Debian's libabsl-dev, googletest
and libbenchmark-dev. The last is looked for only when a target needs it.

The labels are upstream's, so that our BUILD files work there, too. Debian's Abseil
libraries are not position independent, so only its headers are here.
"""

_ABSEIL_HEADERS = {
    "container": ["inlined_vector"],
    "types": ["span"],
}

_HEADERS_BUILD = """
cc_library(
    name = "headers",
    hdrs = glob(["include/absl/**/*.h", "include/absl/**/*.inc"]),
    includes = ["include"],
    visibility = ["//visibility:public"],
)
"""
_ABSEIL_BUILD = """
cc_library(
    name = {name},
    visibility = ["//visibility:public"],
    deps = ["@com_google_absl//:headers"],
)
"""

def _abseil_impl(ctx):
    if not ctx.path("/usr/include/absl").exists:
        fail("/usr/include/absl is missing: install libabsl-dev")
    # A compiler for another system does not look in /usr/include.
    ctx.symlink("/usr/include/absl", "include/absl")
    ctx.file("BUILD", _HEADERS_BUILD)
    for package, names in _ABSEIL_HEADERS.items():
        ctx.file("absl/%s/BUILD" % package, "".join([
            _ABSEIL_BUILD.format(name = repr(name))
            for name in names
        ]))

_abseil = repository_rule(implementation = _abseil_impl, local = True)

_BENCHMARK_BUILD = """
cc_library(
    name = "benchmark",
    linkopts = ["-lbenchmark"],
    visibility = ["//visibility:public"],
)
"""

def _benchmark_impl(ctx):
    if not ctx.path("/usr/include/benchmark/benchmark.h").exists:
        fail("/usr/include/benchmark is missing: install libbenchmark-dev")
    # The compiler and the linker find the rest by themselves.
    ctx.file("BUILD", _BENCHMARK_BUILD)

_benchmark = repository_rule(implementation = _benchmark_impl, local = True)

def debian_repositories():
    _abseil(name = "com_google_absl")
    _benchmark(name = "com_google_benchmark")
    native.new_local_repository(
        name = "com_google_googletest",
        path = "/usr/src/googletest",
        build_file = "//build/bazel:googletest.BUILD",
    )
