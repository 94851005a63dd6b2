# Gives figures of matplotlib and tables of pandas the forms that E2B's clients read. It is the host's own code, and
# does nothing until one of the two is imported: what makes the forms is the text FORMS, which is compiled when the
# first of them is asked for. It may be run again in an interpreter that has it, and then does nothing.
import sys


def give_forms(text):
    # The classes, by their modules, with the function that makes their forms.
    shown = {
        "matplotlib.figure": ("Figure", "figure_forms"),
        "pandas.core.frame": ("DataFrame", "table_forms"),
    }
    made = {}

    def maker(name):
        def forms(self, include=None, exclude=None):
            # No form is better than an error beside the picture, so whatever fails here is left out.
            try:
                if not made:
                    exec(compile(text, "<forms of E2B>", "exec", 0, True), made)
                return made[name](self)
            except Exception:
                return {}

        return forms

    def give(module):
        kind, name = shown[module.__name__]
        kind = getattr(module, kind, None)
        if kind is not None and not hasattr(kind, "_repr_mimebundle_"):
            kind._repr_mimebundle_ = maker(name)

    class FormsFinder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name not in shown:
                return None
            for finder in sys.meta_path:
                find = None if finder is FormsFinder else getattr(finder, "find_spec", None)
                spec = find and find(name, path, target)
                if spec:
                    break
            else:
                return None
            execute = getattr(spec.loader, "exec_module", None)
            if execute:

                def execute_and_give(module):
                    execute(module)
                    give(module)

                spec.loader.exec_module = execute_and_give
            return spec

    if not any(getattr(finder, "__name__", "") == "FormsFinder" for finder in sys.meta_path):
        sys.meta_path.insert(0, FormsFinder)
        for name in shown:
            if name in sys.modules:
                give(sys.modules[name])


give_forms(FORMS)
