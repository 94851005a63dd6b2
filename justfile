# What can be done here. `./do RECIPE` is the same with the tools installed that a recipe needs.

musl := "x86_64-unknown-linux-musl"
bridge := "target/release/host-bridge"
# What `test-vm` leaves out of the suite for every machine: a machine does not have the host's clock, and
# `nothing_lost` takes minutes in machines (`soak-vm` runs it).
not_in_vms := "an_adopted_sandbox_has_another|^nothing_lost::"

# List the recipes.
default:
    @just --list

# Build the bridge and the agent.
build: _agent
    cargo build --release -p host-bridge

# The agent, as small as the toolchain makes it: docs/decisions/0007-a-small-agent.md.
_agent: _target
    #!/usr/bin/env bash
    set -euo pipefail
    library=$(rustc --print sysroot)/lib/rustlib/src/rust/library
    std=(-Z build-std=std,panic_unwind -Z build-std-features=optimize_for_size)
    if [ ! -d "$library" ] && ! rustup component add rust-src >/dev/null 2>&1; then
        echo "build: rust-src is missing, so the agent takes the standard library as it comes and is larger" >&2
        std=()
    fi
    flags=(
        # Functions that cannot unwind need no tables, and frame pointers make the others' short.
        -C force-unwind-tables=no -C force-frame-pointers=yes
        # The toolchain's own linker, which folds equal functions.
        -Z unstable-options -C linker-features=+lld -C link-self-contained=+linker
        -C link-arg=-Wl,--icf=all -C link-arg=-Wl,-z,pack-relative-relocs
        # Nobody looks the build up by a number, and strings that end alike are there once.
        -C link-arg=-Wl,--build-id=none -C link-arg=-Wl,-O2
        # A call is inlined when that costs no more than this; 5 is what "z" takes, and larger.
        -C llvm-args=-inline-threshold=10
        # Panics say where they come from, not where this machine keeps its sources.
        --remap-path-prefix="$library=library"
    )
    if [ ${#std[@]} -gt 0 ]; then
        # The agent's own unwinder (sys/unwind) searches the table of functions without an index.
        flags+=(--cfg own_unwinder -C link-arg=-Wl,--no-eh-frame-hdr)
    fi
    cargo fetch --quiet --target {{musl}}
    for registry in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
        flags+=(--remap-path-prefix="$registry/=")
    done
    # What is unstable here concerns the build alone; the code is what any stable toolchain compiles.
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="${flags[*]}" CARGO_PROFILE_RELEASE_OPT_LEVEL=z \
        CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 \
        cargo build --release -p guest-agent --bins --example panics --target {{musl}} ${std[@]+"${std[@]}"}

# Build, then run Python and a shell command, each in a sandbox of its own.
try: build
    {{bridge}} run -- python3 -c 'import platform; print("Python", platform.python_version(), "on", platform.node())'
    {{bridge}} run -- sh -c 'echo "$(id -un), pid $$ of $(ls -d /proc/[0-9]* | wc -l) processes, root on $(stat -f -c %T /)"'

# Kernel and root file systems for microVMs, with the agent inside: rootfs/README.md.
images *NAMES: _agent
    cargo build --release -p rootfs
    target/release/rootfs build {{NAMES}}
    target/release/rootfs verify

# Everything that CI checks.
ci: lint deny test test-vm

# Format, lints as errors, the lints of the tests included; the fuzz targets compile.
lint: _target
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo clippy -p guest-agent --target {{musl}} -- -D warnings
    cargo fmt --manifest-path fuzz/Cargo.toml --check
    cargo check --quiet --locked --manifest-path fuzz/Cargo.toml --bins --no-default-features --target-dir target/fuzz

# Licences, sources, duplicate versions.
deny:
    cargo deny --log-level error check bans licenses sources

# All tests; the skipped ones say why, and are counted.
test: build _kit
    @rm -f target/skips.log
    # Half of what they do is to wait, so there are some more of them at once than processors.
    cargo nextest run --workspace --no-fail-fast --test-threads $(($(nproc) * 3 / 2))
    cargo test --quiet --workspace --doc
    @just _skips

_skips:
    @if [ -s target/skips.log ]; then echo "skipped: $(wc -l < target/skips.log)"; sort target/skips.log; else echo "skipped: 0"; fi

# The suite for every machine kind (tests/tests/every_machine), in virtual machines: a real kernel, with
# the agent as its init, over vsock. Each test boots one.
# `--workspace` selects the same features as in `test`: without it the dependencies are built again.
test-vm: build _kit
    #!/usr/bin/env bash
    set -euo pipefail
    PATH="$PATH:$HOME/.cargo/bin"
    if ! [ -e target/images/full.erofs ] || ! command -v qemu-system-x86_64 >/dev/null || ! command -v vhost-device-vsock >/dev/null; then
        echo "test-vm: the suites in virtual machines: no image, no QEMU or no relay" | tee -a target/skips.log
    else
        BURROW_TEST_MACHINE=qemu BURROW_TEST_IMAGE=full cargo nextest run --workspace --test every_machine -E 'not test(/{{not_in_vms}}/)'
        # The published SDK's documented examples, against a server whose sandboxes are machines.
        BURROW_DEFAULTS_MACHINE=qemu cargo nextest run --workspace --test clients -E 'test(/^sdk::documented::/)'
    fi
    just _skips

# A hundred boots and stops in a row, and thousands of runs in a machine. Some minutes.
soak-vm: build _kit
    cargo nextest run --workspace --run-ignored only --test machines -E 'test(/^vm::/)' --no-capture
    BURROW_TEST_MACHINE=qemu BURROW_TEST_IMAGE=full cargo nextest run --workspace --test every_machine -E 'test(/^nothing_lost::/)'

# The kernel and images as they are; without them tests of virtual machines are skipped.
_kit:
    -@just images

# The two ends over a link that is cut anywhere, over many seeds.
simulate SEEDS="100000":
    BURROW_SIM_SEEDS={{SEEDS}} cargo test --release -p protocol --test simulation -- --nocapture

# Every decoder that reads bytes from the other side, each for so many seconds.
fuzz SECONDS="60":
    for target in frames_from_host frames_from_agent events tar serial spool_model names greetings requests placeholders; do RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none $target -- -max_total_time={{SECONDS}} -rss_limit_mb=512 -max_len=65536 || exit 1; done

# Write docs/reference/configuration.md and dist/burrow.toml anew, after changing an option.
configuration:
    BURROW_WRITE_CONFIGURATION=1 cargo test -p settings --lib

# Write docs/reference/cli.md anew, after changing a verb or an option.
cli:
    BURROW_WRITE_CLI=1 cargo test -p cli --lib reference

# The book of docs/, as target/book/html. mdBook gets a tree that is laid out as this one is, so that links
# to files beside docs/ work in the book too.
book:
    #!/usr/bin/env bash
    set -euo pipefail
    rm -rf target/book
    mkdir -p target/book/src
    git ls-files -z '*.md' examples dist | xargs -0 cp --parents --target-directory target/book/src
    sed 's#](\.\./#](#; t; s#](#](docs/#' docs/SUMMARY.md >target/book/src/SUMMARY.md
    cp docs/book.toml target/book/
    mdbook build --dest-dir html target/book

# Write the frozen message surface anew, after adding optional fields.
schema MODE="1":
    BURROW_WRITE_SCHEMA={{MODE}} cargo test -p protocol --test schema

# Ten thousand runs each of short commands: not one byte lost. Some minutes.
soak RUNS="10000": build
    BURROW_SOAK_RUNS={{RUNS}} cargo nextest run --release -p tests --run-ignored only -E 'test(soak) - test(/^repl_nothing_lost::/)' --no-capture

# Ten thousand runs each of short code in every language: not one result wrong. Some minutes.
soak-repl RUNS="10000": build
    BURROW_SOAK_RUNS={{RUNS}} cargo nextest run --release -p tests --run-ignored only --test languages -E 'test(/^repl_nothing_lost::/) & test(soak)' --no-capture

# The server under a thousand sandboxes, and sixteen clients: nothing lost or left behind. Some minutes.
soak-server RUNS="1000": build _sdk
    BURROW_SERVER_RUNS={{RUNS}} cargo nextest run --release -p tests --test clients -E 'test(/^sdk::load::/)' --no-capture

# The bridge dies at every step of what it does with images and sandboxes. Some minutes.
soak-crashes SEEDS="100000": build
    BURROW_CRASH_SEEDS={{SEEDS}} cargo nextest run --workspace --test bridge -E 'test(/^crashes::/)' --no-capture

# The server against its own document, with many random calls. Some minutes.
contract EXAMPLES="60" SEED="1": build
    BURROW_CONTRACT_EXAMPLES={{EXAMPLES}} BURROW_CONTRACT_SEED={{SEED}} cargo nextest run --workspace --test api -E 'test(/^api_contract::/)' --no-capture

# What others test MCP with: the conformance suites over HTTP, against the bridge and one with what they
# ask for (tests/mcp/scenarios.json), and the inspector, which calls every tool over lines and HTTP
# (tests/mcp/calls.json). Some packages come from npm, Node 22 among them; two minutes.
mcp: _mcp_fixture build
    tests/mcp/run target/mcp {{bridge}} target/mcp/host-bridge-fixture

# The bridge with what the suites ask for, which goes nowhere else: `build` makes the real one after it.
_mcp_fixture: _agent
    cargo clippy -p host-bridge --all-targets --features mcp-fixture -- -D warnings
    cargo build --release -p host-bridge --features mcp-fixture
    mkdir -p target/mcp
    cp {{bridge}} target/mcp/host-bridge-fixture

# Figures beside a floor measured in the same run: sizes, runs, flood, starts, pool, boot, many, repl, server, or all.
bench WHICH="": build (_jupyter WHICH)
    cargo build --release -p guest-agent --example floor --target {{musl}}
    cargo bench -p tests --bench figures -- {{WHICH}}

# The Jupyter kernel, beside which the contexts are measured; without it that figure is skipped.
_jupyter WHICH:
    #!/usr/bin/env bash
    case "{{WHICH}}" in "" | repl) ;; *) exit 0 ;; esac
    [ -e target/jupyter/ready ] && exit 0
    rm -rf target/jupyter
    if python3 -m venv target/jupyter >target/jupyter.log 2>&1 &&
        target/jupyter/bin/pip install --quiet ipykernel jupyter_client >>target/jupyter.log 2>&1; then
        touch target/jupyter/ready
    else
        echo "bench: no Jupyter kernel: $(tail -n 1 target/jupyter.log)" >&2
    fi

# The published clients that the server is tested with; without them those tests are skipped.
_sdk:
    -@tests/sdk/install target/sdk

_target:
    @rustup target list --installed | grep -q '^{{musl}}$' || rustup target add {{musl}}
