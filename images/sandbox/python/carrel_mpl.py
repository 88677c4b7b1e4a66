"""matplotlib backend of plain python3 processes: show() saves the figures as plot_1.png, plot_2.png, ... in the
working directory, and closes them, as if a user had looked at the windows and closed them."""

import os

from matplotlib import _pylab_helpers, font_manager
from matplotlib.backend_bases import FigureManagerBase, _Backend
from matplotlib.backends.backend_agg import FigureCanvasAgg

import carrel_fonts

carrel_fonts.add_fallbacks(font_manager)


def _create():
    """The next free name, claimed: processes running at the same time do not overwrite each other's figures."""
    number = 1
    while True:
        try:
            return os.fdopen(os.open(f"plot_{number}.png", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb")
        except FileExistsError:
            number += 1


class FigureManager(FigureManagerBase):
    saved = False

    def show(self):
        if self.saved or not (self.canvas.figure.axes or self.canvas.figure.get_children()[1:]):
            return
        with _create() as file:
            self.canvas.figure.savefig(file, format="png")
        self.saved = True

    @classmethod
    def pyplot_show(cls, *, block=None):
        for manager in _pylab_helpers.Gcf.get_all_fig_managers():
            manager.show()
            _pylab_helpers.Gcf.destroy(manager)


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager


@_Backend.export
class _BackendCarrel(_Backend):
    FigureCanvas = FigureCanvas
    FigureManager = FigureManager
