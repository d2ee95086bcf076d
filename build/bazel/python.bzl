"""The Python that the extensions are built for.

`--repo_env=PJIT_PYTHON=/path/to/python` chooses it; the default is `python3`.
`--repo_env=PJIT_HEADERS=/path/to/include` names the headers of a Python that is
not installed here, and `--repo_env=PJIT_FREE_THREADED=1` says that it has no GIL.
`@python//:headers` is for extensions, which find Python's symbols in the process
that loads them. For a free-threaded Python it also makes nanobind declare that a
module does not need the GIL. `@python//:embedded` is for C++ tests, which embed an
interpreter.
"""

_QUERY = """
import os, sys, sysconfig
variable = lambda name: sysconfig.get_config_var(name) or ""
shared = variable("Py_ENABLE_SHARED") == 1 or not os.path.exists(
    os.path.join(variable("LIBPL"), variable("LIBRARY")))
if shared:
    link = ["-L" + variable("LIBDIR"), "-Wl,-rpath," + variable("LIBDIR"),
            "-lpython" + variable("LDVERSION")]
else:
    link = [os.path.join(variable("LIBPL"), variable("LIBRARY")), "-rdynamic"]
link += (variable("LIBS") + " " + variable("SYSLIBS")).split()
print(sysconfig.get_path("include"))
print(sys.executable)
print(repr(link))
print(["NB_FREE_THREADED"] if variable("Py_GIL_DISABLED") == 1 else [])
"""

_HEADERS = """
cc_library(
    name = "headers",
    defines = {defines},
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
    visibility = ["//visibility:public"],
)
"""

_EMBEDDED = """
cc_library(
    name = "embedded",
    defines = ["PJIT_PYTHON='\\"{executable}\\"'"],
    linkopts = {link},
    visibility = ["//visibility:public"],
    deps = [":headers"],
)
"""

def _python_impl(ctx):
    headers = ctx.os.environ.get("PJIT_HEADERS")
    if headers:
        free_threaded = ctx.os.environ.get("PJIT_FREE_THREADED") == "1"
        defines = ["NB_FREE_THREADED", "Py_GIL_DISABLED=1"] if free_threaded else []
        ctx.symlink(headers, "include")
        ctx.file("BUILD", _HEADERS.format(defines = defines))
        return
    python = ctx.os.environ.get("PJIT_PYTHON") or str(ctx.which("python3"))
    result = ctx.execute([python, "-c", _QUERY])
    if result.return_code != 0:
        fail("PJIT_PYTHON=%s does not run: %s" % (python, result.stderr))
    include, executable, link, defines = result.stdout.strip().split("\n")
    if not ctx.path(include + "/Python.h").exists:
        fail("%s has no headers: %s/Python.h is missing" % (python, include))
    ctx.symlink(include, "include")
    ctx.file("BUILD", _HEADERS.format(defines = defines) +
                      _EMBEDDED.format(executable = executable, link = link))

python_repository = repository_rule(
    implementation = _python_impl,
    environ = ["PJIT_FREE_THREADED", "PJIT_HEADERS", "PJIT_PYTHON"],
    local = True,
)
