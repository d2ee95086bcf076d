"""nanobind, from the wheel of the version that build/requirements/tools.txt pins.

`--repo_env=PJIT_NANOBIND=/path/to/site-packages/nanobind` says where it is
installed. The default is the environment that build.py made.
"""

def _nanobind_impl(ctx):
    root = ctx.os.environ.get("PJIT_NANOBIND")
    if not root:
        this = ctx.path(Label("//build/bazel:nanobind.bzl"))
        python = str(this.dirname.dirname.dirname) + "/.build/tools/bin/python"
        result = ctx.execute([python, "-c", "import nanobind; print(nanobind.__path__[0])"])
        if result.return_code != 0:
            fail("no nanobind: run `python3 build/build.py test` once, or name its folder with --repo_env=PJIT_NANOBIND=...")
        root = result.stdout.strip()
    for folder in ["include", "src", "ext"]:
        ctx.symlink(root + "/" + folder, folder)
    ctx.symlink(Label("//build/bazel:nanobind.BUILD"), "BUILD")

nanobind_repository = repository_rule(
    implementation = _nanobind_impl,
    environ = ["PJIT_NANOBIND"],
    local = True,
)
