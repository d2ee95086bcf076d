"""nanobind, from the wheel of the version that build/requirements.txt pins.

`--repo_env=PJIT_NANOBIND=/path/to/site-packages/nanobind` says where pip put
it; without it, the Python of PJIT_PYTHON is asked.
"""

def _nanobind_impl(ctx):
    root = ctx.os.environ.get("PJIT_NANOBIND")
    if not root:
        python = ctx.os.environ.get("PJIT_PYTHON") or str(ctx.which("python3"))
        result = ctx.execute([python, "-c", "import nanobind; print(nanobind.__path__[0])"])
        if result.return_code != 0:
            fail("%s has no nanobind: name its folder with --repo_env=PJIT_NANOBIND=..." % python)
        root = result.stdout.strip()
    for folder in ["include", "src", "ext"]:
        ctx.symlink(root + "/" + folder, folder)
    ctx.symlink(Label("//build/bazel:nanobind.BUILD"), "BUILD")

nanobind_repository = repository_rule(
    implementation = _nanobind_impl,
    environ = ["PJIT_NANOBIND", "PJIT_PYTHON"],
    local = True,
)
