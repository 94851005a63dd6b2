# What E2B's clients read of a figure of matplotlib and of a table of pandas, as JSON. The kinds of charts and
# their fields are those of the clients; whatever is of no kind is `unknown`, and still has its title.
import datetime
import json
import math
import re

CHART = "application/vnd.burrow.chart+json"
TABLE = "application/vnd.burrow.table+json"
# More than a client draws or reads again. A chart with more points, a table with more cells, or a form with more
# characters is left out: the picture and the text are there.
VALUES_MAX = 250_000
FORM_CHARS_MAX = 4 << 20


def figure_forms(figure):
    axes = figure.axes
    if not axes:
        chart = {}
    elif len(axes) == 1:
        chart = chart_of(axes[0])
    else:
        title = figure._suptitle.get_text() if figure._suptitle else ""
        elements = [chart_of(one) for one in axes]
        chart = {"type": "superchart", "title": title or None, "elements": elements}
    return form(CHART, chart)


def table_forms(frame):
    rows, columns = frame.shape
    if rows * columns > VALUES_MAX:
        return {}
    names = [str(name) for name in frame.columns]
    values = ([plain(value) for value in frame.iloc[:, at].tolist()] for at in range(columns))
    return form(TABLE, dict(zip(names, values)))


def form(mime, value):
    text = json.dumps(value, allow_nan=False)
    return {mime: text} if len(text) <= FORM_CHARS_MAX else {}


# A value as JSON has it: numbers that are none are null, points in time as ISO has them.
def plain(value):
    if hasattr(value, "dtype") and hasattr(value, "item"):
        value = time_of(value) if value.dtype.kind == "M" else value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (datetime.date, datetime.time)):
        # The time that is none has this form, too.
        return value.isoformat() if value == value else None
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if hasattr(value, "to_timestamp"):
        return value.to_timestamp().isoformat()
    return None if type(value).__name__ in ("NAType", "NaTType") else str(value)


def time_of(value):
    text = str(value.astype("datetime64[us]"))
    return datetime.datetime.fromisoformat(text) if text != "NaT" else None


# One chart.
def chart_of(axes):
    kind = kind_of(axes)
    chart = {"type": kind, "title": axes.get_title() or None, "elements": []}
    if kind == "pie":
        chart["elements"] = [slice_of(wedge) for wedge in axes.patches]
    elif kind != "unknown":
        for name in "xy":
            label = getattr(axes, "get_%slabel" % name)()
            unit = re.search(r"\(([^()]+)\)|\[([^\[\]]+)\]", label)
            chart[name + "_label"] = label or None
            chart[name + "_unit"] = (unit[1] or unit[2]) if unit else None
        MAKERS[kind](axes, chart)
    return chart


def kind_of(axes):
    from matplotlib.collections import PathCollection
    from matplotlib.patches import PathPatch, Rectangle, Wedge

    if axes.name == "3d" or axes.images or axes.tables or axes.artists:
        return "unknown"
    lines = [line for line in axes.lines if not is_grid_line(line)]
    patches, collections = axes.patches, axes.collections

    def all_are(them, kind):
        return len(them) > 0 and all(isinstance(one, kind) for one in them)

    if not patches and not collections:
        return "line"
    if not collections and all_are(patches, PathPatch):
        return "box_and_whisker"
    if lines or (patches and collections):
        return "unknown"
    if all_are(collections, PathCollection):
        return "scatter"
    if all_are(patches, Wedge):
        return "pie"
    return "bar" if all_are(patches, Rectangle) and axes.containers else "unknown"


def is_grid_line(line):
    x, y = line.get_xdata(), line.get_ydata()
    return len(x) == 2 and (x[0] == x[1] or y[0] == y[1])


# The name of a series, or one that is made of its number where it has none.
def name_of(artist, kind, number):
    label = str(artist.get_label())
    if not label.startswith("_"):
        return label
    own = re.fullmatch(r"_(?:child|container)(\d+)", label)
    return "%s %s" % (kind, own[1] if own else number)


def slice_of(wedge):
    label = str(wedge.get_label())
    return {
        "label": "" if label.startswith("_") else label,
        # They are made of numbers of single precision.
        "angle": round(abs(float(wedge.theta2) - float(wedge.theta1)), 4),
        "radius": float(wedge.r),
    }


def converter_of(axis):
    get = getattr(axis, "get_converter", None)
    return get() if get else axis.converter


def is_time(axis):
    name = type(converter_of(axis)).__name__
    return re.search("Date|Time|Period", name) is not None


# A number of an axis of time as that time.
def moment(axis, number):
    frequency = getattr(axis, "freq", None) or getattr(axis.axes, "freq", None)
    if frequency is not None and "Period" in type(converter_of(axis)).__name__:
        import pandas

        return pandas.Period(ordinal=int(number), freq=frequency).to_timestamp().isoformat()
    from matplotlib.dates import num2date

    return num2date(number).isoformat()


# What makes places of an axis values.
def placer(axis):
    if not is_time(axis):
        return plain

    def place(value):
        value = plain(value)
        return moment(axis, value) if isinstance(value, (int, float)) else value

    return place


def scale_of(axis, ticks, labels):
    if is_time(axis):
        return "datetime"
    scale = axis.get_scale()
    if scale != "linear":
        return scale
    # Ticks that count, with words beside them.
    counts = ticks and all(tick == at for at, tick in enumerate(ticks))
    words = all(str(at) != label for at, label in enumerate(labels))
    return "categorical" if counts and words else "linear"


def add_scales(axes, chart):
    for name in "xy":
        axis = getattr(axes, name + "axis")
        labels = [label.get_text() for label in axis.get_ticklabels()]
        ticks = [*map(placer(axis), map(float, axis.get_majorticklocs()))]
        chart[name + "_ticks"], chart[name + "_tick_labels"] = ticks, labels
        chart[name + "_scale"] = scale_of(axis, ticks, labels)


def add_series(axes, chart, series):
    if sum(len(points) for _, points in series) > VALUES_MAX:
        raise ValueError("too many points")
    add_scales(axes, chart)
    x_of, y_of = placer(axes.xaxis), placer(axes.yaxis)
    chart["elements"] = [
        {"label": label, "points": [[x_of(x), y_of(y)] for x, y in points]}
        for label, points in series
    ]


def add_lines(axes, chart):
    series = []
    for number, line in enumerate(axes.lines):
        if not is_grid_line(line):
            points = list(zip(line.get_xdata(), line.get_ydata()))
            series.append((name_of(line, "Line", number), points))
    add_series(axes, chart, series)


def add_scatter(axes, chart):
    series = []
    for number, collection in enumerate(axes.collections):
        offsets = collection.get_offsets()
        offsets = offsets.filled(math.nan) if hasattr(offsets, "filled") else offsets
        series.append((name_of(collection, "Scatter", number), offsets))
    add_series(axes, chart, series)


# What stands at a place of an axis of categories: the words at the nearest tick, if somebody has written some
# there, and the place itself otherwise.
def word_at(axis, place, ticks):
    from matplotlib.ticker import FixedLocator

    is_worded = isinstance(axis.get_major_locator(), FixedLocator) or "Category" in type(
        converter_of(axis)
    ).__name__
    if is_worded and ticks:
        nearest = min(ticks, key=lambda tick: abs(tick[0] - place))
        return nearest[1]
    if is_time(axis):
        return moment(axis, place)
    return str(int(place)) if place.is_integer() else "%.6g" % place


def ticks_of(axis):
    labels = [label.get_text() for label in axis.get_ticklabels()]
    return [(float(tick), label) for tick, label in zip(axis.get_majorticklocs(), labels)]


# Across and along: what lies on its side is given as if it stood.
def stand_up(chart):
    for field in ("label", "unit"):
        x, y = "x_" + field, "y_" + field
        chart[x], chart[y] = chart[y], chart[x]


def add_bars(axes, chart):
    lying = [one for one in axes.containers if getattr(one, "orientation", "") == "horizontal"]
    axis = axes.yaxis if lying else axes.xaxis
    ticks = ticks_of(axis)
    for number, container in enumerate(axes.containers):
        group = name_of(container, "Group", number)
        for bar in getattr(container, "patches", ()):
            if lying:
                middle, value = bar.get_y() + bar.get_height() / 2, bar.get_width()
            else:
                middle, value = bar.get_x() + bar.get_width() / 2, bar.get_height()
            label = word_at(axis, float(middle), ticks)
            chart["elements"].append({"label": label, "group": group, "value": plain(value)})
    if lying:
        stand_up(chart)


def add_boxes(axes, chart):
    lines = [as_numbers(line) for line in axes.lines]
    boxes = [box.get_path().vertices for box in axes.patches]
    upright = sum(has_whisker(box, lines, 0) for box in boxes)
    across = 0 if upright >= sum(has_whisker(box, lines, 1) for box in boxes) else 1
    axis = axes.yaxis if across else axes.xaxis
    ticks = ticks_of(axis)
    for box in boxes:
        middle, low, high = box_at(box, across)
        found = {"label": word_at(axis, middle, ticks), **around(box, lines, across)}
        chart["elements"].append({**found, "first_quartile": low, "third_quartile": high})
    if across:
        stand_up(chart)


# The points of a line, each as its two coordinates, and whether it is drawn as one.
def as_numbers(line):
    data = zip(line.get_xdata(orig=False), line.get_ydata(orig=False))
    return [(float(x), float(y)) for x, y in data], line.get_linestyle() not in ("None", " ", "")


# The middle of a box on the axis that the boxes stand on, and its edges on the other, which a notch may overlap.
def box_at(vertices, across):
    on, along = vertices[:, across], vertices[:, 1 - across]
    pairs = zip(vertices, vertices[1:])
    flat = [one[1 - across] for one, next in pairs if one[1 - across] == next[1 - across]]
    edges = [float(edge) for edge in flat] or [float(along.min()), float(along.max())]
    return float(on.min() + on.max()) / 2, min(edges), max(edges)


def is_close(one, other):
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


# The lines from a box to its extremes.
def whiskers(vertices, lines, across):
    middle, low, high = box_at(vertices, across)
    for points, drawn in lines:
        if drawn and len(points) == 2 and all(is_close(point[across], middle) for point in points):
            ends = sorted(point[1 - across] for point in points)
            # One that has both its ends there goes through the box.
            if is_close(ends[1], low) or is_close(ends[0], high):
                yield ends


def has_whisker(vertices, lines, across):
    return any(first != last for first, last in whiskers(vertices, lines, across))


# What is drawn around a box: its extremes, the line through it, and what lies beyond.
def around(vertices, lines, across):
    middle, low, high = box_at(vertices, across)
    on = vertices[:, across]
    ends = [end for pair in whiskers(vertices, lines, across) for end in pair]
    least, most = min([low, *ends]), max([high, *ends])
    through, beyond = [], []
    for points, drawn in lines:
        if not points or not all(on.min() <= point[across] <= on.max() for point in points):
            continue
        places = [point[1 - across] for point in points]
        if not drawn and all(is_close(point[across], middle) for point in points):
            beyond += [place for place in places if not least <= place <= most]
        elif drawn and len(points) == 2 and is_close(*places) and low <= places[0] <= high:
            width = abs(points[0][across] - points[1][across])
            through.append((round(width, 9), places[0]))
    # The caps of whiskers that have no length are in the box, too, and are narrower or come first.
    widest = max((width for width, _ in through), default=0)
    medians = [place for width, place in through if width == widest]
    inner = [place for place in medians if not is_close(place, least) and not is_close(place, most)]
    return {
        "min": least,
        "median": (inner or medians or [None])[0],
        "max": most,
        "outliers": beyond,
    }


MAKERS = {
    "line": add_lines,
    "scatter": add_scatter,
    "bar": add_bars,
    "box_and_whisker": add_boxes,
}
