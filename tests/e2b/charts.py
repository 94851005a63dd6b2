"""Charts and tables of results. `BURROW_TEST_LIBRARIES` is an environment of Python with matplotlib and pandas."""

import contextlib
import datetime
import json
import os

import e2b_code_interpreter as interpreter
from wire import name_of, native, sandbox

_LIBRARIES = os.environ["BURROW_TEST_LIBRARIES"]
_IMPORTS = "import datetime, numpy, matplotlib.pyplot as plt\n"


@contextlib.contextmanager
def _drawing():
    envs = {"PATH": f"{_LIBRARIES}/bin:/usr/bin:/bin", "MPLCONFIGDIR": f"{_LIBRARIES}/fonts"}
    with sandbox(envs=envs, timeout=600) as sbx:
        yield lambda code: _results(sbx.run_code(_IMPORTS + code))


def _results(run):
    assert run.error is None and run.logs.stderr == [], run
    return run.results


def _chart(draw, code):
    (result,) = draw(code + "\nplt.show()")
    assert result.png.startswith("iVBOR") and not result.is_main_result, result
    assert result.extra is None or result.extra == {}, result.extra
    return result.chart


def lines_have_their_points_ticks_and_scales():
    with _drawing() as draw:
        chart = _chart(
            draw,
            "dates = [datetime.date(2023, 9, 1) + datetime.timedelta(days=n) for n in range(3)]\n"
            "plt.plot(dates, [1, 2, float('nan')], label='sin(x)')\n"
            "plt.plot(dates, [3, 4, 5])\n"
            "plt.xlabel('Time (s)'); plt.ylabel('Amplitude [Hz]'); plt.title('T'); plt.grid(True); plt.axhline(2)",
        )
        assert isinstance(chart, interpreter.charts.LineChart), chart
        assert (chart.title, chart.x_label, chart.y_label) == ("T", "Time (s)", "Amplitude [Hz]")
        assert (chart.x_unit, chart.y_unit) == ("s", "Hz")
        assert (chart.x_scale.value, chart.y_scale.value) == ("datetime", "linear")
        assert [line.label for line in chart.elements] == ["sin(x)", "Line 1"]
        assert chart.elements[0].points == [("2023-09-01", 1), ("2023-09-02", 2), ("2023-09-03", None)]
        assert len(chart.x_ticks) == len(chart.x_tick_labels) > 0
        assert all(datetime.datetime.fromisoformat(tick) for tick in chart.x_ticks)
        assert all(isinstance(tick, float) for tick in chart.y_ticks), chart.y_ticks
        chart = _chart(draw, "plt.plot(['a', 'b'], [1, 100]); plt.yscale('log')")
        assert (chart.x_scale.value, chart.y_scale.value) == ("categorical", "log")
        assert chart.x_tick_labels == ["a", "b"] and chart.title is None and chart.x_label is None
        assert chart.elements[0].points == [("a", 1), ("b", 100)]
        pandas = "import pandas\npandas.DataFrame({'n': [1, 2]}, index=pandas.date_range('2024-01-01', periods=2)).plot()"
        assert _chart(draw, pandas).elements[0].points == [("2024-01-01T00:00:00", 1), ("2024-01-02T00:00:00", 2)]


def points_are_scattered():
    with _drawing() as draw:
        chart = _chart(draw, "plt.scatter([1, 2], [3, 4], label='D'); plt.scatter([5], [6])")
        assert isinstance(chart, interpreter.charts.ScatterChart), chart
        assert [(one.label, one.points) for one in chart.elements] == [("D", [(1, 3), (2, 4)]), ("Scatter 1", [(5, 6)])]
        chart = _chart(draw, "plt.scatter([datetime.datetime(2020, 1, 1, 3)], [4])")
        assert chart.x_scale.value == "datetime"
        assert chart.elements[0].points == [("2020-01-01T03:00:00+00:00", 4)]


def bars_have_labels_groups_and_values():
    with _drawing() as draw:
        chart = _chart(draw, "plt.bar(['A', 'B'], [100, 200], label='Sold'); plt.bar(['A', 'B'], [1, 2]); plt.ylabel('n')")
        assert isinstance(chart, interpreter.charts.BarChart) and chart.y_label == "n", chart
        bars = [(bar.label, bar.group, bar.value) for bar in chart.elements]
        assert bars == [("A", "Sold", 100), ("B", "Sold", 200), ("A", "Group 1", 1), ("B", "Group 1", 2)], bars
        # One that lies is given as if it stood.
        chart = _chart(draw, "plt.barh(['A', 'B'], [3, 4]); plt.xlabel('n')")
        assert [(bar.label, bar.value) for bar in chart.elements] == [("A", 3), ("B", 4)] and chart.y_label == "n"
        # Bars beside each other belong to the tick that is next to them; where there are no words, to their place.
        pandas = "import pandas\npandas.DataFrame({'a': [1, 2], 'b': [3, 4], 'c': [5, 6]}, index=['u', 'v']).plot.bar()"
        bars = [(bar.label, bar.group, bar.value) for bar in _chart(draw, pandas).elements]
        assert bars == [("u", "a", 1), ("v", "a", 2), ("u", "b", 3), ("v", "b", 4), ("u", "c", 5), ("v", "c", 6)], bars
        assert [bar.label for bar in _chart(draw, "plt.bar([1, 2.5], [3, 4])").elements] == ["1", "2.5"]


def pies_have_angles():
    with _drawing() as draw:
        chart = _chart(draw, "plt.pie([15, 30, 55], labels=['a', 'b', 'c'], autopct='%d'); plt.title('P')")
        assert isinstance(chart, interpreter.charts.PieChart) and chart.title == "P", chart
        assert [(part.label, part.angle, part.radius) for part in chart.elements] == [("a", 54, 1), ("b", 108, 1), ("c", 198, 1)]


def boxes_have_quartiles_and_what_lies_beyond():
    data = "data = [[1, 2, 3, 4, 5, 20], [2, 2, 2, 2], [3, 4, 5, 6, 7, -9]]\n"
    wanted = [(1, 2.25, 3.5, 4.75, 5, [20]), (2, 2, 2, 2, 2, []), (3, 3.25, 4.5, 5.75, 7, [-9])]
    with _drawing() as draw:
        for options in [
            "tick_labels=['x', 'y', 'z']",
            "tick_labels=['x', 'y', 'z'], vert=False",
            "tick_labels=['x', 'y', 'z'], notch=True, showmeans=True, meanline=True",
        ]:
            chart = _chart(draw, f"import warnings; warnings.simplefilter('ignore')\n{data}plt.boxplot(data, patch_artist=True, {options})")
            assert isinstance(chart, interpreter.charts.BoxAndWhiskerChart), chart
            boxes = [(b.min, b.first_quartile, b.median, b.third_quartile, b.max, b.outliers) for b in chart.elements]
            assert boxes == wanted, (options, boxes)
            assert [box.label for box in chart.elements] == ["x", "y", "z"], options


def several_axes_are_a_chart_of_charts():
    with _drawing() as draw:
        chart = _chart(
            draw,
            "figure, axes = plt.subplots(1, 3)\nfigure.suptitle('All')\n"
            "axes[0].plot([1, 2, 3]); axes[1].scatter([1], [2]); axes[2].imshow([[1, 2], [3, 4]])\n"
            "axes[0].set_title('One')",
        )
        assert isinstance(chart, interpreter.charts.SuperChart) and chart.title == "All", chart
        assert [one.type.value for one in chart.elements] == ["line", "scatter", "unknown"]
        assert [one.title for one in chart.elements] == ["One", None, None]


def what_is_no_chart_is_a_picture_all_the_same():
    with _drawing() as draw:
        chart = _chart(draw, "plt.imshow([[1, 2], [3, 4]]); plt.title('I')")
        assert (chart.type.value, chart.title, chart.elements) == ("unknown", "I", [])
        assert _chart(draw, "plt.figure()") is None
        # More points than anybody reads again.
        assert _chart(draw, "plt.plot(numpy.zeros(300_000))") is None
        # A figure as a value, and one that is displayed.
        (result,) = draw("plt.plot([1, 2])\nplt.gcf()")
        assert result.is_main_result and result.chart.elements[0].points == [(0, 1), (1, 2)], result
        (result,) = draw("figure, _ = plt.subplots()\ndisplay(figure)\nplt.close('all')")
        assert result.chart.type.value == "line" and result.chart.elements == [], result


def tables_have_their_data():
    with _drawing() as draw:
        (result,) = draw(
            "import pandas\n"
            "pandas.DataFrame({'n': [1, 2], 't': pandas.date_range('2024-01-01', periods=2), 's': ['é', None],"
            " 'f': [1.5, float('nan')], 'i': pandas.array([1, None], dtype='Int64'), 3: [True, False]})"
        )
        assert result.is_main_result and "<table" in result.html and "2024-01-01" in result.text, result
        assert result.data == {
            "n": [1, 2],
            "t": ["2024-01-01T00:00:00", "2024-01-02T00:00:00"],
            "s": ["é", None],
            "f": [1.5, None],
            "i": [1, None],
            "3": [True, False],
        }, result.data
        (result,) = draw("display(pandas.DataFrame({'a': [1]}))")
        assert result.data == {"a": [1]} and not result.is_main_result
        (result,) = draw("pandas.DataFrame(numpy.zeros((200_000, 2)))")
        assert result.data is None and "<table" in result.html


def every_interpreter_of_a_client_makes_them_and_no_other():
    envs = {"PATH": f"{_LIBRARIES}/bin:/usr/bin:/bin", "MPLCONFIGDIR": f"{_LIBRARIES}/fonts"}
    with sandbox(envs=envs) as sbx:
        draw = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
        other = sbx.create_code_context()
        for context in [None, other]:
            run = sbx.run_code(draw, context=context)
            assert run.results[0].chart.type.value == "line", run
            # It is counted as the first, for what is run beside it is not the client's.
            assert run.execution_count == 1, run
        sbx.restart_code_context(other)
        assert sbx.run_code(draw, context=other).results[0].chart.type.value == "line"
        sbx.run_code("import os; os.kill(os.getpid(), 9)")
        assert sbx.run_code(draw).results[0].chart.type.value == "line"
        # Nothing of it is among the names of the code, and an import is what it was.
        assert sbx.run_code("[name for name in globals() if 'forms' in name.lower()]").text == "[]"
        spec = "import importlib.util as u; (u.find_spec('matplotlib.figure').name, u.find_spec('none_of_these'))"
        assert sbx.run_code(spec).text == "('matplotlib.figure', None)"
        # A context of another door draws as it always did.
        path = f"/v1/sandboxes/default/{name_of(sbx)}/contexts/own/run"
        asked = {"language": "python", "code": draw + "\nhasattr(plt.Figure, '_repr_mimebundle_')"}
        run = native("POST", path, asked)
        assert "False" in json.dumps(run) and "burrow.chart" not in json.dumps(run), run

