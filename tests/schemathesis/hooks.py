"""What schemathesis must know of the server that its document does not say.

Calls that would wait are given a bound. Two checks are told which refusals depend on what there is in
a sandbox rather than on the shape of a call.
"""

import io
import tarfile

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData, ServerError
from schemathesis.openapi.checks import RejectedPositiveData

# What a call may take that sets itself no bound or one that is larger, in milliseconds.
PATIENCE_MS = 1500
# The longest time that may be asked for; what is beyond it must be refused.
DAY_MS = 86_400_000
READY_MS = 600_000
WAITING = {"wait_for_session", "wait_for_sandbox", "write_session"}
RUNNING = {"exec", "shell", "run", "run_in_context", "render"}
RUNNING_SECONDS = {"a2a_exec", "a2a_run_python", "a2a_run_shell"}
ENDING = {"stop_sandbox", "kill_sandbox", "remove_sandbox", "extend_sandbox"}
# Streams without an end, which this client would read for ever: asked of no sandbox that runs.
ENDLESS = {"watch_context", "watch_files", "follow_metrics"}
# Answers that are cut off when their time is over, so that nobody takes a part for the whole.
WHOLE_OR_CUT = {"read_file", "pack_files", "read_artifact"}
FOLLOWING = {"read_log", "read_session"}

# Refusals of calls that are as the document wants them, with the reason. `invalid` is among them
# only for what a schema cannot say, and then by its operation.
STATE = {
    "not_found": "nothing of that name is there",
    "conflict": "it is there already, or in another state",
    "gone": "it has ended",
    "unsupported": "this machine kind or image cannot do it",
    "app_failed": "what was drawn is no app",
    "app_not_ready": "the same, and it goes on",
    "module_missing": "the image has no such framework",
    "spawn_failed": "there is no such program, user or directory",
    "io": "the guest's kernel refuses",
    "limit_reached": "there are as many as there may be",
    "misdirected": "the generated Host or Origin is not ours",
    "idempotency_mismatch": "the key was used before",
    "range_not_satisfiable": "the file is shorter, or the output is",
    "deadline_exceeded": "the call gave itself too little time",
    "forbidden": "the key does not reach that far",
    "unknown_secret": "the configuration has none of that name",
    "unknown_workspace": "the configuration has none of that name",
    "workspace_failed": "there is no such directory, or it is larger than its limits",
}

# What `invalid` means where a schema could not have said it, by what the message says.
BEYOND_SCHEMAS = (
    "has both path and path_base64",
    "has no path",
    "exclude each other",
    # A snapshot has decided on the machine, its image and its sizes.
    "the snapshot sets it",
    "is not valid base64",
    "is not absolute",
    "create_only needs",
    "scratch_bytes must be",
    "scratch_bytes (--scratch) must be",
    "is not a name of an environment variable",
    "cannot be the name of an environment variable",
    # What the name of an image is, of its parts and all together.
    "the name of an image",
    "the name is longer than",
    "is not a registry",
    "is not a repository name",
    "is not a tag",
    "is not a digest",
    "is a digest without a name",
    # Which names of hosts are none but addresses, and which ports a rule may have.
    "egress: ",
    "the value of the label",
    "does not match Content-Digest",
    "Content-Digest cannot be checked",
    # The header is drawn empty in spite of its pattern.
    "Content-Digest is malformed",
    "this call is a WebSocket",
    "an app of the type",
    # Of what there is in the sandbox.
    "no such sample was taken yet",
    "has no terminal",
    "it has terminal",
    "is a directory",
    "not a position in a log",
    "the code has fewer than",
    "has no name of its own",
    "the query does not say which artifacts",
    # One body serves runs in contexts and in notebooks.
    "cache_key: only runs in notebooks take it",
    "only regular files are kept",
    "no file matches this name",
    # Of two times the first is the earlier, and a step makes no more points than an answer holds.
    "must be before to",
    "step must be at least",
    "since is about the newest samples",
    # A key has bounds for each of its parts.
    "is not an object of a bucket",
    # The parameter is drawn empty in spite of its pattern.
    '"resume" has no value',
    # Of two places one is enough, and offsets of one node are no place of all.
    "resume is for events of all nodes",
    "with all_nodes use resume or since_ms",
    # What is drawn is an archive, and no snapshot.
    "the archive of the snapshot is refused",
)


@schemathesis.serializer("application/x-tar")
def archive(context, value):
    """An archive of one file, whatever the document's schema has drawn."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        content = str(value).encode("utf-8", "replace")
        entry = tarfile.TarInfo("drawn")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


@schemathesis.hook
def before_call(context, case, kwargs):
    """Bounds what would wait, and keeps the sandbox that all other calls are about.

    Whole numbers are sent without a fraction, as clients do: for JSON Schema `5.0` is an integer, for
    the server it is not.
    """
    name = case.operation.definition.raw.get("operationId")
    query, body, path = case.query, case.body, case.path_parameters
    if path and path.get("name") == "contract" and name in ENDING:
        path["name"] = "spare-1"
    if path and path.get("sandbox") == "contract" and name == "a2a_remove":
        path["sandbox"] = "spare-1"
    if path and name in ENDLESS and len(path["name"]) > 2:
        path["name"] = "nobody"
    if isinstance(body, (dict, list)):
        case.body = body = _whole(body)
    if name in WAITING and isinstance(query, dict):
        _bound(query)
    if name in RUNNING and isinstance(body, dict):
        _bound(body)
    if name in RUNNING_SECONDS and isinstance(body, dict):
        _bound_seconds(body)
    if name == "pull_image" and isinstance(body, dict) and isinstance(body.get("image"), str):
        # Of no registry but one on this host, where nobody listens.
        body["image"] = f"127.0.0.1:9/{body['image']}"
    if name == "start_app" and isinstance(body, dict):
        _bound(body, "ready_timeout_ms", READY_MS)
    if name in WHOLE_OR_CUT and case.headers:
        case.headers.pop("burrow-deadline-ms", None)
    if name in FOLLOWING and isinstance(query, dict) and query.get("follow") in (True, "true"):
        query["follow"] = "false"


def _whole(value):
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value


def _bound(place, field="timeout_ms", longest_ms=DAY_MS):
    asked = place.get(field)
    if isinstance(asked, str) and asked.isdigit():
        asked = int(asked)
    if asked is None or type(asked) is int and PATIENCE_MS < asked <= longest_ms:
        place[field] = PATIENCE_MS


def _bound_seconds(place, field="timeout_seconds"):
    asked = place.get(field)
    if asked is None or type(asked) in (int, float) and PATIENCE_MS / 1000 < asked <= DAY_MS:
        place[field] = PATIENCE_MS / 1000


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Lets pass what is right in spite of a check."""
    code = _code(response)
    if isinstance(failure, ServerError):
        # A call that gave itself a deadline and missed it, and a registry that is not there.
        missed = code == "deadline_exceeded" and "burrow-deadline-ms" in _names(case.headers)
        return not missed and code != "pull_failed"
    if isinstance(failure, RejectedPositiveData):
        if code == "invalid":
            return not any(words in response.text for words in BEYOND_SCHEMAS)
        return code not in STATE
    if isinstance(failure, AcceptedNegativeData):
        # A server takes fields of a request's head that it does not know.
        return "in header - object with unexpected properties" not in failure.message
    return True


def _code(response):
    """The code of a refusal, in the form of the native API or of JSON-RPC."""
    try:
        said = response.json()
        return said.get("code") or said["error"]["data"]["reason"]
    except (ValueError, AttributeError, KeyError, TypeError):
        return None


def _names(headers):
    return {name.lower() for name in headers or {}}
