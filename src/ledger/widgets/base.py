"""What every picture of the course shares: a palette, a figure that any frontend shows, an explorer with controls.

A figure is a white card with dark text on purpose: it reads the same on a light page, on a dark one and on paper.
"""

import base64
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

# Okabe and Ito's colours, told apart by colour-blind readers; the darker of each pair where text is set in it.
COLORS: dict[str, str] = {
    "materialize": "#C44E00",
    "absorb": "#0067A5",
    "latent": "#00795A",
    "rope": "#A34C86",
    "value": "#8A6500",
    "neutral": "#5B6570",
    "predict": "#4A3F9E",
    "count": "#006E7A",
    "measure": "#9B2226",
    "ink": "#1F2328",
    "paper": "#FFFFFF",
    "grid": "#D9DEE3",
}

SCREEN_DPI = 96
SHARPNESS = 2  # pixels of the image for one of the page: sharp on dense screens and when zoomed


@cache
def _style() -> dict[str, Any]:
    ink, neutral, paper, grid = (COLORS[k] for k in ("ink", "neutral", "paper", "grid"))
    return {
        "figure.facecolor": paper,
        "axes.facecolor": paper,
        "savefig.facecolor": paper,
        "font.size": 10.0,
        "axes.titlesize": 11.0,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 10.0,
        "xtick.labelsize": 9.0,
        "ytick.labelsize": 9.0,
        "legend.fontsize": 9.0,
        "legend.frameon": False,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.titlecolor": ink,
        "axes.edgecolor": neutral,
        "xtick.color": neutral,
        "ytick.color": neutral,
        "xtick.labelcolor": ink,
        "ytick.labelcolor": ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": grid,
        "grid.linewidth": 0.7,
        "lines.linewidth": 2.0,
        "lines.markersize": 5.5,
    }


def style():
    """A context in which axes are made in the course's style: ``with style(): ax = fig.subplots()``."""
    import matplotlib

    return matplotlib.rc_context(_style())


@cache
def _picture_class():
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    class StyledAxes(Axes):
        """Axes whose lines, titles and legends take the course's style without a ``with`` around each call."""

        def plot(self, *args, **kwargs):
            with style():
                return super().plot(*args, **kwargs)

        def set_title(self, *args, **kwargs):
            with style():
                return super().set_title(*args, **kwargs)

        def legend(self, *args, **kwargs):
            with style():
                return super().legend(*args, **kwargs)

    class Picture(Figure):
        """A matplotlib Figure that shows itself once, sharp, as the last value of a cell or through ``display``."""

        def _ipython_display_(self):
            from IPython.display import display

            data, metadata = bundle(self)
            display(data, metadata=metadata, raw=True)

        def add_subplot(self, *args, **kwargs):
            with style():
                return super().add_subplot(*args, **{"axes_class": StyledAxes, **kwargs})

    return Picture


def new_figure(width: float = 7.5, height: float = 3.6, alt: str = ""):
    """An empty figure of ``width`` × ``height`` inches in the course's style; ``alt`` says what it shows, in words.

    It is not pyplot's, so nothing shows it twice or keeps it alive, and it needs no ``%matplotlib`` line.
    """
    with style():
        fig = _picture_class()(figsize=(width, height), dpi=SCREEN_DPI * SHARPNESS, layout="constrained")
    fig.get_layout_engine().set(w_pad=0.10, h_pad=0.08)
    fig.set_label(alt)
    return fig


def plain_ticks(axis) -> None:
    """Label a logarithmic axis ``1 10 100 1,000`` in place of powers; for counts of tokens."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.set_minor_locator(NullLocator())


def log_axes(ax) -> None:
    """Make both axes logarithmic with ticks at the powers of ten alone: each more tick is drawn at each step."""
    from matplotlib.ticker import NullLocator

    ax.set(xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())


def png(fig) -> bytes:
    """The figure as a PNG image of ``SHARPNESS`` pixels for one on the page."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = fig.canvas if isinstance(fig.canvas, FigureCanvasAgg) else FigureCanvasAgg(fig)
    with style():
        canvas.draw()
    target = io.BytesIO()
    image = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba(), "raw", "RGBA", 0, 1)
    # The least compression: a quarter of the time of the usual one, and a sixth more bytes.
    image.convert("RGB").save(target, "png", compress_level=1)
    return target.getvalue()


def bundle(fig) -> tuple[dict[str, str], dict[str, Any]]:
    """The figure as Jupyter shows it: a PNG with its size on the page, and its description as the text."""
    width, height = (round(inches * SCREEN_DPI) for inches in fig.get_size_inches())
    alt = fig.get_label() or "figure"
    data = {"image/png": base64.b64encode(png(fig)).decode("ascii"), "text/plain": f"[figure] {alt}"}
    return data, {"image/png": {"width": width, "height": height, "alt": alt}}


@dataclass(frozen=True)
class Choice:
    """A control with a few named options; ``options`` are values, or (label, value) pairs."""

    label: str
    options: Sequence[Any]
    value: Any

    def widget(self):
        import ipywidgets

        return ipywidgets.Dropdown(options=self.options, value=self.value, description=self.label)


@dataclass(frozen=True)
class Steps:
    """A slider over a list of numbers, such as powers of two; the number is shown with thousands separators."""

    label: str
    options: Sequence[int]
    value: int

    def widget(self):
        import ipywidgets

        pairs = [(f"{n:,}", n) for n in self.options]
        return ipywidgets.SelectionSlider(options=pairs, value=self.value, description=self.label)


def powers_of_two(low: int, high: int) -> list[int]:
    """The powers of two from ``low`` to ``high``, both included where they are one."""
    return [1 << k for k in range(high.bit_length()) if low <= 1 << k <= high]


class Explorer:
    """A figure with controls: it changes in place at each step, and stands still where there are no widgets.

    A subclass sets ``title`` and ``size`` (inches) and gives ``controls``, ``setup`` and ``update``. Axes and artists
    are made once by ``setup``; ``update`` gives them the data of the controls' values, so that a step costs no more
    than drawing them. Axes keep the places that fit the first values. The first view needs matplotlib alone.
    """

    title = ""
    size = (8.2, 4.2)

    def controls(self) -> "Mapping[str, Choice | Steps]":
        """The controls by the name of the value that they set: ``Choice`` or ``Steps``."""
        raise NotImplementedError

    def setup(self, fig) -> Any:
        """Make the axes and artists on the empty ``fig``; what is returned is the ``view`` that ``update`` gets."""
        raise NotImplementedError

    def update(self, view, **values) -> None:
        """Give the artists of ``view`` the data, texts and limits that belong to the controls' ``values``."""
        raise NotImplementedError

    def follow(self, name: str, value: Any) -> Mapping[str, Any]:
        """What other controls are set to when control ``name`` is set to ``value``; nothing unless a subclass says."""
        return {}

    def figure(self, **values):
        """The figure for ``values``; a control that is not named keeps its first value, or follows one that is.

        Raises ValueError for a name that is no control, and for a value that its control does not offer.
        """
        controls = self.controls()
        if unknown := values.keys() - controls.keys():
            raise ValueError(f"{type(self).__name__} has no {sorted(unknown)}; it has: {', '.join(controls)}")
        for name, value in values.items():
            offered = [option[1] if isinstance(option, tuple) else option for option in controls[name].options]
            if value not in offered:
                raise ValueError(f"{name} cannot be {value!r}; the choices are: {', '.join(map(str, offered))}")
        fig, view, first = self._first_view()
        for name, value in values.items():
            first |= self.follow(name, value)
        with style():
            self.update(view, **(first | values))
        return fig

    def _first_view(self):
        """A figure of the first values with its axes in their places, the view to update it by, and the values."""
        first = {name: control.value for name, control in self.controls().items()}
        fig = new_figure(*self.size, alt=self.title)
        with style():
            view = self.setup(fig)
            self.update(view, **first)
            fig.get_layout_engine().execute(fig)
        fig.set_layout_engine("none")
        return fig, view, first

    def show(self, static: bool = False) -> None:
        """Show controls and figure; only the first view with ``static=True`` or without ipywidgets.

        The output carries that first view as a picture too, for a frontend that cannot run widgets. Where pages are
        made without a kernel behind them, ``LEDGER_STATIC=1`` in the environment says ``static`` for all of them.
        """
        from IPython.display import display

        static = static or bool(os.environ.get("LEDGER_STATIC"))
        figure, view, _ = self._first_view()
        try:
            import ipywidgets
        except ImportError:
            static = True
        if static:
            display(figure)
            return

        controls = {name: control.widget() for name, control in self.controls().items()}
        for control in controls.values():
            control.style.description_width = "initial"
            control.layout.width = "390px"
        data, metadata = bundle(figure)
        size = metadata["image/png"]
        picture = ipywidgets.Image(
            value=base64.b64decode(data["image/png"]),
            format="png",
            layout=ipywidgets.Layout(width="100%", max_width=f"{size['width']}px", height="auto"),
        )

        following = False

        # One image whose bytes change: nothing is cleared, so nothing flickers and no output is ever added.
        def redraw(name, change):
            nonlocal following
            if following:
                return
            following = True
            try:
                for other, value in self.follow(name, change.new).items():
                    controls[other].value = value
            finally:
                following = False
            with style():
                self.update(view, **{name: control.value for name, control in controls.items()})
            picture.value = png(figure)

        for name, control in controls.items():
            control.observe(partial(redraw, name), names="value")
        row = ipywidgets.Box(
            list(controls.values()),
            layout=ipywidgets.Layout(flex_flow="row wrap", grid_gap="2px 28px", padding="0 0 6px 6px"),
        )
        data |= ipywidgets.VBox([row, picture])._repr_mimebundle_()
        display(data, metadata=metadata, raw=True)
