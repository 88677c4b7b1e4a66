"""Adjusts a library when user code imports it: nothing is imported that nobody asked for."""

import importlib.machinery
import os
import sys


class _Loader:
    def __init__(self, loader, adjust):
        self._loader, self._adjust = loader, adjust

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._adjust(module)


class _Finder:
    def __init__(self, adjustments):
        self._adjustments = adjustments

    def find_spec(self, name, path=None, target=None):
        adjust = self._adjustments.get(name)
        if adjust is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, adjust)
        return spec


def _matplotlib(module):
    # Not by MPLBACKEND in the environment: programs started from a cell would inherit it.
    if os.environ.get("MPLBACKEND", "module://carrel_mpl") == "module://carrel_mpl":
        module.rcParams["backend"] = "module://matplotlib_inline.backend_inline"


def _font_manager(module):
    import carrel_fonts

    carrel_fonts.add_fallbacks(module)


def _plotly(module):
    """fig.show() gives one self-contained page."""
    base = sys.modules["plotly.io._base_renderers"]

    class Page(base.MimetypeRenderer):
        def to_mimebundle(self, fig_dict):
            from plotly.io import to_html

            return {"text/html": to_html(fig_dict, full_html=True, include_plotlyjs=True, validate=False)}

    module.renderers["carrel"] = Page()
    if not os.environ.get("PLOTLY_RENDERER"):
        module.renderers.default = "carrel"


def install():
    sys.meta_path.insert(
        0,
        _Finder(
            {
                "matplotlib": _matplotlib,
                "matplotlib.font_manager": _font_manager,
                "plotly.io._renderers": _plotly,
            }
        ),
    )
