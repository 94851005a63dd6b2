# What can be done here. `./do RECIPE` is the same with the tools installed that a recipe needs.

musl := "x86_64-unknown-linux-musl"
bridge := "target/release/host-bridge"
# What the shipped bridge may have, agent included (SPECIFICATION.md).
dist_bytes_max := "33000000"
# What `test-vm` leaves out of the suite for every machine: a machine does not have the host's clock, and
# `nothing_lost` takes minutes in machines (`soak-vm` runs it).
not_in_vms := "an_adopted_sandbox_has_another|^nothing_lost::"

# A compiler that expects full RELRO makes it so that each call between crates goes through a table that is filled
# when the program starts: 370 KB of it, and as many relocations as all else has. The linker makes it full all the same.
direct_calls := "-C relro-level=partial -C link-arg=-Wl,-z,now"

# List the recipes.
default:
    @just --list

# Build the bridge, the agent, and the builder of images. The builder is in the same call because its
# dependencies are the bridge's with the same features; in a call of its own cargo builds 31 of them again.
build: _agent
    RUSTFLAGS="{{direct_calls}}" cargo build --release -p host-bridge -p rootfs

# The bridge that is shipped, in target/dist: linked as a whole, with equal functions once. It takes
# minutes, so `build` makes another; the size is held here.
dist: _agent
    #!/usr/bin/env bash
    set -euo pipefail
    # The toolchain's own linker; not every compiler takes it by itself.
    host=$(rustc -vV | sed -n 's/^host: //p')
    flags=({{direct_calls}} -C link-arg=-fuse-ld=lld -C link-arg="-B$(rustc --print sysroot)/lib/rustlib/$host/bin/gcc-ld")
    flags+=(-C link-arg=-Wl,--icf=all -C force-frame-pointers=yes)
    cargo fetch --quiet --target "$host"
    flags+=(--remap-path-prefix="$(rustc --print sysroot)/lib/rustlib/src/rust/library=library")
    for registry in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
        flags+=(--remap-path-prefix="$registry/=")
    done
    RUSTFLAGS="${flags[*]}" cargo build --profile dist -p host-bridge
    bytes=$(stat -c %s target/dist/host-bridge)
    echo "target/dist/host-bridge: $bytes bytes"
    if [ "$bytes" -gt {{dist_bytes_max}} ]; then
        echo "dist: that is more than {{dist_bytes_max}}" >&2
        exit 1
    fi

# The agent, as small as a stable toolchain makes it: docs/decisions/0018-the-agents-size.md.
_agent: _target
    #!/usr/bin/env bash
    set -euo pipefail
    # Frame pointers make the unwind tables short, and functions that cannot unwind need none. The
    # toolchain's own linker keeps one of equal functions.
    flags=(-C force-frame-pointers=yes -C force-unwind-tables=no)
    flags+=(-C linker=rust-lld -C link-arg=--icf=all -C link-arg=--build-id=none)
    # A call is smaller than what most functions would be in the place of it.
    flags+=(-C llvm-args=-inline-threshold=15)
    # The musl of toolchains before 1.93 does not apply packed relocations, and their agent would crash.
    flags+=(-C link-arg=-z -C link-arg=pack-relative-relocs)
    cargo fetch --quiet --target {{musl}}
    # Panics say where they come from, not where this machine keeps its sources. The library's own are there
    # only with the toolchain's component `rust-src`.
    flags+=(--remap-path-prefix="$(rustc --print sysroot)/lib/rustlib/src/rust/library=library")
    for registry in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
        flags+=(--remap-path-prefix="$registry/=")
    done
    RUSTFLAGS="${flags[*]}" CARGO_PROFILE_RELEASE_OPT_LEVEL=z \
        CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 \
        cargo build --release -p guest-agent --bins --example panics --target {{musl}}

# Build, then run Python and a shell command, each in a sandbox of its own.
try: build
    {{bridge}} run -- python3 -c 'import platform; print("Python", platform.python_version(), "on", platform.node())'
    {{bridge}} run -- sh -c 'echo "$(id -un), pid $$ of $(ls -d /proc/[0-9]* | wc -l) processes, root on $(stat -f -c %T /)"'

# What tests run: themselves, the bridge and the builder of images, none of it optimised. That takes a third less
# time than `build` alone, and overflows are found.
_tested: _agent
    PATH="$PATH:$HOME/.cargo/bin" cargo nextest run --workspace --no-run

# Kernel and root file systems for microVMs, with the agent inside: rootfs/README.md.
images *NAMES: build
    target/release/rootfs build {{NAMES}}
    target/release/rootfs verify

# The image with pandas and matplotlib, and the test of it. No part of CI, which would fetch some hundred more
# packages for it.
science: (images "science") _tested
    PATH="$PATH:$HOME/.cargo/bin" cargo nextest run --workspace --test languages -E 'test(/^science::/)'

# Everything that CI checks.
ci: lint deny test compare-short test-vm

# Warnings are errors with the toolchain that CI uses, which is the oldest that is promised. A newer one has lints
# that were not there when this was written.
warnings := `v=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); rustc -V | grep -qF "rustc $v." && echo "-D warnings" || true`

# Format, lints as errors, the lints of the tests included; the fuzz targets compile.
lint: _target
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- {{warnings}}
    cargo clippy -p guest-agent --target {{musl}} -- {{warnings}}
    cargo fmt --manifest-path fuzz/Cargo.toml --check
    cargo check --quiet --locked --manifest-path fuzz/Cargo.toml --bins --no-default-features --target-dir target/fuzz

# Licences, sources, duplicate versions.
deny:
    cargo deny --log-level error check bans licenses sources

# All tests; the skipped ones say why, and are counted.
test: _tested _kit _nats
    @rm -f target/skips.log
    # Half of what they do is to wait.
    cargo nextest run --workspace --no-fail-fast --test-threads $(($(nproc) * 2))
    cargo test --quiet --workspace --doc
    @just _skips

_skips:
    @if [ -s target/skips.log ]; then echo "skipped: $(wc -l < target/skips.log)"; sort target/skips.log; else echo "skipped: 0"; fi

# The suite for every machine kind (tests/tests/every_machine), in virtual machines: a real kernel, with
# the agent as its init, over vsock. Each test boots one.
# `--workspace` selects the same features as in `test`: without it the dependencies are built again.
test-vm: _tested _kit
    #!/usr/bin/env bash
    set -euo pipefail
    PATH="$PATH:$HOME/.cargo/bin"
    if ! [ -e target/images/full.erofs ] || ! command -v qemu-system-x86_64 >/dev/null || ! command -v vhost-device-vsock >/dev/null; then
        echo "test-vm: the suites in virtual machines: no image, no QEMU or no relay" | tee -a target/skips.log
    else
        BURROW_TEST_MACHINE=qemu BURROW_TEST_IMAGE=full cargo nextest run --workspace --test every_machine -E 'not test(/{{not_in_vms}}/)'
        # The published SDK's documented examples, and forks and snapshots by E2B's, against a server whose sandboxes are machines.
        BURROW_DEFAULTS_MACHINE=qemu cargo nextest run --workspace --test clients -E 'test(/^sdk::documented::|^e2b::machines$/)'
    fi
    just _v2 security=groups
    just _skips

# Firecracker and Cloud Hypervisor as they are on the PATH, on a KVM that runs guests: their verbs, then the
# suite for every machine kind. KIT is a directory with a kernel as `vmlinux`, an initramfs and images.
# On a host whose KVM is slow, SUITE chooses among the tests of the suite, and `none` leaves it out.
monitors KIT="target/images" SUITE="": _tested
    #!/usr/bin/env bash
    set -euo pipefail
    kit=$(realpath "{{KIT}}")
    missing() { echo "monitors: $1" | tee -a target/skips.log; }
    kinds=()
    for kind in firecracker cloud-hypervisor; do
        if program=$(command -v "$kind"); then
            echo "monitors: $program, $("$program" --version | head -n 1)"
            kinds+=("$kind")
        else
            missing "$kind, which is not on the PATH"
        fi
    done
    if ! [ -w /dev/kvm ]; then missing "all of them: /dev/kvm is not there or not ours"; kinds=(); fi
    for file in vmlinux initramfs.cpio python.erofs; do
        if ! [ -e "$kit/$file" ]; then missing "all of them: $kit has no $file"; kinds=(); fi
    done
    if [ ${#kinds[@]} -gt 0 ]; then
        export BURROW_IMAGES=$kit
        BURROW_TEST_MONITORS="${kinds[*]}" cargo nextest run --workspace --test-threads 1 --test machines -E 'test(/^monitors::/)'
    fi
    for kind in "${kinds[@]}"; do
        if [ "{{SUITE}}" = none ]; then missing "the suite for every machine kind on $kind, as asked"; continue; fi
        BURROW_TEST_MACHINE=$kind BURROW_TEST_IMAGE=python cargo nextest run --workspace --test every_machine -E 'not test(/{{not_in_vms}}/) & test(/{{SUITE}}/)'
    done
    just _skips

# What meets control groups, in a machine with systemd and version 2 of them alone: as root, and as an
# ordinary user. Many minutes: everything is emulated.
test-v2: build _kit (_v2 "security" "agent" "every_machine=freeze" "bridge=caps" "bridge=daemon")

# `GROUP` or `GROUP=WORDS`: the tests of a group whose names have these words.
_v2 *GROUPS:
    #!/usr/bin/env bash
    set -euo pipefail
    programs=()
    for asked in {{GROUPS}}; do
        built=$(cargo test --workspace --no-run --test "${asked%%=*}" 2>&1) || { echo "$built"; exit 1; }
        programs+=("${asked%%=*}=$(sed -n 's/.*Executable .*(\(.*\))$/\1/p' <<<"$built")${asked#"${asked%%=*}"}")
    done
    code=0
    tests/v2/run target/images "${programs[@]}" || code=$?
    # There can be no such machine here: what is missing has been said.
    if [ $code = 77 ]; then echo "v2: the machine with control groups of version 2" >> target/skips.log; code=0; fi
    exit $code

# A hundred boots and stops in a row, and thousands of runs in a machine. Some minutes.
soak-vm: _tested _kit
    cargo nextest run --workspace --run-ignored only --test machines -E 'test(/^vm::/)' --no-capture
    BURROW_TEST_MACHINE=qemu BURROW_TEST_IMAGE=full cargo nextest run --workspace --test every_machine -E 'test(/^nothing_lost::/)'

# The kernel and images as they are; without them tests of virtual machines are skipped.
_kit: _tested
    -@target/debug/rootfs build && target/debug/rootfs verify

# The two ends over a link that is cut anywhere, over many seeds.
simulate SEEDS="100000":
    BURROW_SIM_SEEDS={{SEEDS}} cargo test --release -p protocol --test simulation -- --nocapture

# Members of a fleet under seeded chaos, then a thousand nodes with so many sandboxes, then a NATS server with as many names.
# Some minutes.
simulate-fleet SEEDS="3000" SANDBOXES="1000000": _nats
    BURROW_SIM_SEEDS={{SEEDS}} BURROW_SIM_SANDBOXES={{SANDBOXES}} cargo test --release -p fleet --test simulation -- --include-ignored --nocapture
    BURROW_NATS_NAMES={{SANDBOXES}} cargo test --release -p fleet --test nats -- --ignored --nocapture a_million_names

# Five members of a fleet on three NATS servers, which are killed and stopped while hosts die, for so many seconds. Then
# real bridges under all of that and cut cables and full disks, for four seeds of a quarter of it each. Then bridges that
# are killed while readers follow durable output, for half as long. Then clients race for 3,000 names through all gateways.
soak-fleet SECONDS="600" SEED="1": _tested _nats
    BURROW_CHAOS_SECONDS={{SECONDS}} BURROW_CHAOS_SEED={{SEED}} cargo nextest run --workspace --test nats -E 'test(/^chaos::/)' --no-capture
    BURROW_CHAOS_SECONDS=$(({{SECONDS}} / 4)) BURROW_CHAOS_SEED={{SEED}} BURROW_CHAOS_SEEDS=4 BURROW_CHAOS_HOSTS=5 cargo nextest run --workspace --retries 0 --test fleet -E 'test(/^chaos::real_bridges/)' --no-capture
    BURROW_CHAOS_SECONDS=$(({{SECONDS}} / 2)) cargo nextest run --workspace --test fleet -E 'test(no_byte_that_was_shown_under_sync)' --no-capture
    BURROW_RACED_NAMES=3000 cargo nextest run --workspace --test fleet -E 'test(a_name_that_a_client_of_each_gateway_wants)' --no-capture

# Every decoder that reads bytes from the other side, each for so many seconds.
fuzz SECONDS="60":
    for target in frames_from_host frames_from_agent events tar serial spool_model names greetings requests placeholders; do RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none $target -- -max_total_time={{SECONDS}} -rss_limit_mb=512 -max_len=65536 || exit 1; done

# Write docs/reference/configuration.md and dist/burrow.toml again, after changing an option.
configuration:
    BURROW_WRITE_CONFIGURATION=1 cargo test -p settings --lib

# Write docs/reference/cli.md again, after changing a verb or an option.
cli:
    BURROW_WRITE_CLI=1 cargo test -p cli --lib reference

# Write docs/reference/options.md again, after changing an option of sandboxes.
options:
    BURROW_WRITE_OPTIONS=1 cargo test -p sandbox --lib options

# Write dist/kubernetes/burrow.yaml again, after a change of the chart.
manifests:
    BURROW_WRITE_MANIFESTS=1 cargo nextest run --workspace --test tree -E 'test(/^deploy::the_chart/)'

# Write the types of the TypeScript client, after a change of the HTTP API. It needs npm.
typescript: _tested
    -@BURROW_WRITE_TYPES="$PWD/clients/typescript/src" cargo nextest run --workspace --test clients -E 'test(=typescript_client::package)'
    git diff --stat -- clients/typescript/src

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

# Write the frozen message surface again, after adding optional fields.
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

# Links that are flipped while the agent follows them, as root and as an ordinary user: a minute each.
soak-races SECONDS="60": _tested
    BURROW_RACE_SECONDS={{SECONDS}} cargo nextest run --workspace --test security -E 'test(/^races::|flipped/)' --no-capture

# The bridge dies at every step of what it does with images and sandboxes. Some minutes.
soak-crashes SEEDS="100000": _tested
    BURROW_CRASH_SEEDS={{SEEDS}} cargo nextest run --workspace --test bridge -E 'test(/^crashes::/)' --no-capture

# The server against its own document, with many random calls. Some minutes.
contract EXAMPLES="60" SEED="1": _tested
    BURROW_CONTRACT_EXAMPLES={{EXAMPLES}} BURROW_CONTRACT_SEED={{SEED}} cargo nextest run --workspace --test api -E 'test(/^api_contract::/)' --no-capture

# What others test MCP with: the conformance suites over HTTP, against the bridge and one with what they
# ask for (tests/mcp/scenarios.json), and the inspector, which calls every tool over lines and HTTP
# (tests/mcp/calls.json). Some packages come from npm, Node 22 among them; two minutes.
mcp: _mcp_fixture build
    tests/mcp/run target/mcp {{bridge}} target/mcp/host-bridge-fixture

# The bridge with what the suites ask for, which goes nowhere else: `build` makes the real one after it.
_mcp_fixture: _agent
    cargo clippy -p host-bridge -p api --all-targets --features mcp-fixture -- -D warnings
    cargo build --release -p host-bridge --features mcp-fixture
    mkdir -p target/mcp
    cp {{bridge}} target/mcp/host-bridge-fixture

# Figures beside a floor measured in the same run: sizes, runs, flood, starts, pool, boot, many, repl, peers, server, fleet, or all.
# `bench --compare REV` measures this tree beside a revision instead, in turns.
bench WHICH="" REV="":
    #!/usr/bin/env bash
    set -euo pipefail
    case "{{WHICH}}" in
    --compare) just _compare "{{REV}}" ;;
    *) just _figures "{{WHICH}}" ;;
    esac

_figures WHICH: build _nats (_jupyter WHICH)
    cargo build --release -p guest-agent --example floor --target {{musl}}
    cargo bench -p tests --bench figures -- {{WHICH}}

# The revision that has landed last. Write it again after a landing.
landed := `cat tests/benches/landed`

# This tree beside the revision that has landed last, both as the tests have them, which are not optimised: each row in
# nine turns of both. Fails if a row is slower by more than a quarter, twice; the flood is only shown.
compare-short: _tested
    #!/usr/bin/env bash
    set -euo pipefail
    if ! git cat-file -e "{{landed}}^{commit}" 2>/dev/null; then
        echo "compare-short: the revision that has landed last, {{landed}}, which this clone does not have" | tee -a target/skips.log
        exit 0
    fi
    base=$PWD/target/compare/{{landed}}-tested new=$PWD/target/compare/tested
    [ -e "$base/guest-agent" ] || tests/benches/compare/build debug {{landed}} "$base"
    mkdir -p "$new"
    cp target/debug/host-bridge target/{{musl}}/release/guest-agent "$new"
    cargo test --quiet --workspace --bench compare -- --short "$base" "$new"

_compare REV:
    #!/usr/bin/env bash
    set -euo pipefail
    revision=$(git rev-parse --verify --quiet "{{REV}}^{commit}") || { echo "bench: no revision {{REV}}" >&2; exit 2; }
    base=$PWD/target/compare/$revision new=$PWD/target/compare/new
    just build
    [ -e "$base/guest-agent" ] || tests/benches/compare/build release "$revision" "$base"
    mkdir -p "$new"
    cp {{bridge}} target/{{musl}}/release/guest-agent "$new"
    cargo bench -p tests --bench compare -- "$base" "$new"

# Where the time of one kind of call goes, exec, run, flood or claim: system calls of the bridge and of the
# agents per call (strace), and a flame graph in target/profile where perf and inferno are. The bridge is the
# usual one, with the names of its functions.
profile WHICH: build
    cargo rustc --release -p host-bridge --bin host-bridge -- -C strip=none
    mkdir -p target/profile
    cp {{bridge}} target/profile/
    BURROW_TEST_BRIDGE="$PWD/target/profile/host-bridge" cargo bench -p tests --bench profile -- {{WHICH}}

# The Jupyter kernel, beside which the contexts are measured; without it those figures are skipped. The tests have a
# Jupyter of their own in target/jupyter, without a kernel.
_jupyter WHICH:
    #!/usr/bin/env bash
    case "{{WHICH}}" in "" | repl) ;; *) exit 0 ;; esac
    place=target/jupyter-kernel
    [ -e $place/ready ] && exit 0
    rm -rf $place
    if python3 -m venv $place >$place.log 2>&1 &&
        $place/bin/pip install --quiet ipykernel jupyter_client jupyter_server websocket-client >>$place.log 2>&1; then
        touch $place/ready
    else
        echo "bench: no Jupyter kernel: $(tail -n 1 $place.log)" >&2
    fi

# The published clients that the server is tested with; without them those tests are skipped.
_sdk:
    -@tests/sdk/install target/sdk

# The NATS server that the fleet is tested with; without it those tests are skipped.
_nats:
    -@crates/fleet/tests/nats/install target/nats

_target:
    @rustup target list --installed | grep -q '^{{musl}}$' || rustup target add {{musl}}
