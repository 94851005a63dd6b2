"""Serves the web app that a file has, at 127.0.0.1 and the port in $PORT.

It is started as `python launcher.py TYPE FILE`. The file is run as `__main__`, so that it works as it
would from a shell. Code that serves by itself does so at our port, whichever it names; otherwise its
app is looked for when it has been run, and served.
"""

import os
import sys
import types

HOST = "127.0.0.1"
NAMES = ("app", "application")
FACTORY = "create_app"

# Whether the code has served by itself. Then there is nothing more for us to do.
served = False


def main():
    kind, path = sys.argv[1:3]
    port = int(os.environ["PORT"])
    # As a shell has it: the file's directory, and where we were started besides.
    sys.path[:1] = [os.path.dirname(path), os.getcwd()]
    sys.argv[:] = [path]
    serve = {"flask": prepare_flask, "fastapi": prepare_asgi}[kind](port)
    module = run_as_main(path)
    if not served:
        serve(find_app(vars(module), KINDS[kind]()))


def run_as_main(path):
    """What the file is once it has been run. It stays `__main__`: what it defines refers to that."""
    module = types.ModuleType("__main__")
    module.__file__ = path
    sys.modules["__main__"] = module
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    exec(code, vars(module))
    return module


def flask_class():
    import flask

    return flask.Flask


def asgi_class():
    try:
        from starlette.applications import Starlette
    except ImportError:
        return ()
    return Starlette


KINDS = {"flask": flask_class, "fastapi": asgi_class}


def find_app(names, kind):
    """The app by its usual names, else the only one that there is, else what the factory makes."""
    for name in NAMES:
        if callable(names.get(name)):
            return names[name]
    apps = {id(value): name for name, value in names.items() if kind and isinstance(value, kind)}
    if len(apps) == 1:
        return names[next(iter(apps.values()))]
    if callable(names.get(FACTORY)):
        return names[FACTORY]()
    if apps:
        told = ", ".join(sorted(apps.values()))
        sys.exit(f"there are several apps ({told}), and none of them is called `app`")
    sys.exit("there is no app: name it `app`, or define `create_app()`")


def prepare_flask(port):
    import flask
    from werkzeug.serving import run_simple

    def serve(app):
        run_simple(HOST, port, app, threaded=True, use_reloader=False, use_debugger=False)

    def run(self, *_arguments, **_options):
        note_served()
        serve(self)

    flask.Flask.run = run
    return serve


def prepare_asgi(port):
    import uvicorn

    uvicorn_run = uvicorn.run

    def serve(app):
        uvicorn_run(app, host=HOST, port=port)

    def run(app, *_arguments, **options):
        # What says how the app behaves is kept; where and in how many processes it is served is ours.
        kept = ("factory", "lifespan", "log_level", "root_path", "ws")
        if isinstance(app, str):
            app = resolve(app)
        chosen = {name: options[name] for name in kept if name in options}
        note_served()
        uvicorn_run(app, host=HOST, port=port, **chosen)

    uvicorn.run = run
    return serve


def note_served():
    global served
    served = True


def resolve(text):
    """The app that `module:name` means, in the file itself where the module is not another file."""
    import importlib

    module, _, path = text.partition(":")
    found = sys.modules["__main__"]
    if os.path.splitext(os.path.basename(found.__file__))[0] != module:
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
    for name in (path or "app").split("."):
        found = getattr(found, name)
    return found


main()
