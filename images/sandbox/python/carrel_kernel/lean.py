"""Loads ipykernel without the parts a kernel without a terminal never uses: about 110 ms of 380."""

import importlib.machinery
import importlib.util
import sys
import types

# Optional imports of ipykernel and IPython, which do without when they are missing: the debugger, the completer's static
# analysis, other event loops.
_ABSENT = ("debugpy", "_pydevd_bundle", "jedi", "curio", "trio")


def _embed_stand_in():
    """IPython/__init__ imports the terminal (prompt_toolkit with it) only for embed() and start_ipython()."""
    module = types.ModuleType("IPython.terminal.embed")

    def embed(*_args, **_kwargs):
        raise RuntimeError("embed() needs a terminal")

    module.embed = embed
    return module


def _client_stand_in():
    """jupyter_client/__init__ imports everything a client needs; the kernel wants a few submodules."""
    spec = importlib.machinery.PathFinder.find_spec("jupyter_client")
    package = importlib.util.module_from_spec(spec)
    sys.modules["jupyter_client"] = package
    from jupyter_client.connect import find_connection_file, write_connection_file

    package.find_connection_file = find_connection_file
    package.write_connection_file = write_connection_file
    return package


def load():
    """Imports ipykernel.kernelapp; afterwards user code can import every module as if nothing had been left out."""
    for name in _ABSENT:
        sys.modules[name] = None
    sys.modules["IPython.terminal.embed"] = _embed_stand_in()
    try:
        package = _client_stand_in()
        import ipykernel.debugger
        import ipykernel.kernelapp  # noqa: F401
    finally:
        for name in _ABSENT:
            sys.modules.pop(name, None)
        sys.modules.pop("IPython.terminal.embed", None)
    # "import jupyter_client" of user code runs the real __init__; loaded submodules stay what they are.
    if sys.modules.get("jupyter_client") is package:
        del sys.modules["jupyter_client"]
