"""What a model could have written: a figure, with matplotlib if the sandbox has it, else as plain SVG."""

import math

xs = [n / 20 for n in range(0, 126)]
ys = [math.sin(x) for x in xs]


class Curve:
    """A figure without any package: objects with `_repr_svg_` are displayed as SVG."""

    def _repr_svg_(self):
        points = " ".join(f"{40 + 80 * x:.1f},{120 - 80 * y:.1f}" for x, y in zip(xs, ys))
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" width="580" height="240">'
            '<rect width="100%" height="100%" fill="white"/>'
            '<line x1="40" y1="120" x2="560" y2="120" stroke="grey"/>'
            f'<polyline points="{points}" fill="none" stroke="steelblue" stroke-width="2"/>'
            '<text x="40" y="20" font-family="sans-serif">sin(x)</text></svg>'
        )


try:
    from matplotlib import pyplot
except ImportError:
    display(Curve())  # noqa: F821 - the sandbox's interpreter has it, as Jupyter has
    print("drawn without matplotlib, which this sandbox does not have")
else:
    pyplot.plot(xs, ys)
    pyplot.title("sin(x)")
    pyplot.show()
    print("drawn with matplotlib", __import__("matplotlib").__version__)
