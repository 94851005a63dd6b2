#!/bin/sh
# A sandbox over plain HTTP, from its creation to its removal. Needs curl and a server:
#
#     host-bridge serve --dev &
#     sh examples/curl/sandbox.sh
#
# BURROW_URL names another server, BURROW_API_KEY the key of one that wants keys.
set -eu
api=${BURROW_URL:-http://127.0.0.1:5555}/v1
name=curl-example-$$

# Every request: fail on a refusal, and show what the server said about it.
request() {
    curl --silent --show-error --fail-with-body \
        --header "Authorization: Bearer ${BURROW_API_KEY:-}" \
        --header 'Content-Type: application/json' "$@"
}
sandbox=$api/sandboxes/default/$name
trap 'request --request DELETE "$sandbox?force=true" >/dev/null' EXIT

echo "# create it; it ends by itself ten minutes after its last use"
request "$api/sandboxes" --data "{\"name\":\"$name\",\"idle_ttl_ms\":600000}" >/dev/null

echo "# run a command and get its result"
request "$sandbox/shell" --data '{"script":"echo hello; exit 3","timeout_ms":10000}'
echo

echo "# the same as a stream: one line of JSON for each event"
request --no-buffer --header 'Accept: application/x-ndjson' \
    "$sandbox/shell" --data '{"script":"for n in 1 2 3; do echo $n; sleep 0.1; done"}'

echo "# a file in, and a part of it out"
printf 'ten bytes\n' | request --upload-file - "$sandbox/files/content?path=/srv/note" >/dev/null
request --range 4- "$sandbox/files/content?path=/srv/note"

echo "# Python whose variables live on between calls"
request "$sandbox/contexts/python/run" --data '{"code":"x = 41"}' >/dev/null
request "$sandbox/contexts/python/run" --data '{"code":"print(x + 1)"}'
echo
