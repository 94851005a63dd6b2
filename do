#!/usr/bin/env bash
# Runs a recipe of the justfile, after seeing to it that the tools for it are there.
#   ./do try     build, then run Python and a shell command in a sandbox
#   ./do ci      build, then all checks and tests
#   ./do book    the documents as a book, in target/book/html
set -euo pipefail
cd "$(dirname "$0")"
recipe=${1:-default}

say() { printf 'do: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

have cargo || {
    say "Rust is missing: no 'cargo' on PATH. Install a toolchain (1.95 or newer, with rustup) and run this again."
    exit 1
}
export PATH="$HOME/.cargo/bin:$PATH"
have cc || { say "a C linker is missing: no 'cc' on PATH. Install gcc (Debian: apt-get install gcc)."; exit 1; }

# The quickest of the ways in which a tool comes.
install_cargo_tool() { # binary crate[@version]
    have "$1" && return
    say "installing $2, which takes some minutes the first time"
    cargo install --quiet --locked "$2"
}
# What is only looked at here need not be quick, and is built in a third of the time.
install_quickly() { # binary crate[@version] [more words]
    have "$1" && return
    say "installing $2, which takes a minute or two the first time"
    CARGO_PROFILE_DEV_DEBUG=false cargo install --quiet --locked --debug "$2" "${@:3}"
}
install_just() {
    have just && return
    if have pip && pip install --quiet --root-user-action=ignore rust-just 2>/dev/null && have just; then return; fi
    install_cargo_tool just just
}
# Programs that the tests drive, by the packages that bring them where those are called otherwise.
# Without root, tests that want a missing one are skipped and say so.
install_debian() { # program or program=package
    local missing=()
    for wanted in "$@"; do
        have "${wanted%%=*}" || [ -x "/usr/sbin/${wanted%%=*}" ] || missing+=("${wanted##*=}")
    done
    [ ${#missing[@]} -eq 0 ] && return
    if have apt-get && [ "$(id -u)" = 0 ]; then
        say "installing ${missing[*]}"
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "${missing[@]}" >/dev/null ||
            say "could not install ${missing[*]}; tests that want them are skipped"
    else
        say "missing: ${missing[*]}; tests that want them are skipped"
    fi
}

install_just
# Virtual machines; what is missing of them costs only the tests of them.
install_machines() {
    install_debian qemu-system-x86_64=qemu-system-x86 mkfs.ext4=e2fsprogs curl
    # Debian 12 has it with QEMU, later releases by itself.
    [ -x /usr/lib/qemu/virtiofsd ] || [ -x /usr/libexec/virtiofsd ] || install_debian virtiofsd
    install_cargo_tool vhost-device-vsock vhost-device-vsock@0.3.0 ||
        say "could not install vhost-device-vsock; tests of virtual machines are skipped"
}
# Prometheus's own check of rules, without the service that comes with it in Debian's package.
install_promtool() {
    have promtool && return
    if have apt-get && have dpkg-deb && [ "$(id -u)" = 0 ]; then
        say "installing promtool"
        local place
        place=$(mktemp -d)
        # apt gives up its rights for a download, and needs a directory of its own.
        chmod 755 "$place"
        if apt-get update -qq && (cd "$place" && apt-get download -qq prometheus >/dev/null 2>&1 &&
            dpkg-deb -x prometheus_*.deb . && install -m 755 usr/bin/promtool /usr/local/bin/); then
            rm -rf "$place"
            return
        fi
        rm -rf "$place"
    fi
    say "could not install promtool; tests of rules for Prometheus are skipped"
}
# A server of S3's on loopback, for the tests of buckets. It is only driven: it need not be quick.
install_store() {
    install_quickly s3s-fs s3s-fs@0.14.1 --features binary ||
        say "could not install s3s-fs; tests of buckets are skipped"
}
case $recipe in
ci | test | test-vm | test-v2 | soak | soak-fleet | soak-repl | soak-server | soak-races | soak-crashes | soak-vm)
    install_cargo_tool cargo-nextest cargo-nextest
    install_debian tmux vim less zsh fish python3 ssh=openssh-client rsync busybox=busybox-static umoci docker-registry skopeo htpasswd=apache2-utils openssl ip=iproute2 faketime curl git strace chromium
    install_promtool
    install_store
    ;;&
ci | test | test-vm | test-v2 | soak-vm | bench) install_machines ;;&
# Not as the init of this host: as that of a machine that tests/v2/run boots.
ci | test-vm | test-v2) install_debian systemd-run=systemd ;;&
profile)
    install_debian strace perf=linux-perf
    install_quickly inferno-flamegraph inferno || say "could not install inferno; there is no flame graph"
    ;;
bench) install_debian busybox=busybox-static bwrap=bubblewrap crun ;;&
images) install_debian curl ;;&
ci | deny) install_quickly cargo-deny cargo-deny ;;&
fuzz) install_cargo_tool cargo-fuzz cargo-fuzz ;;
book) install_quickly mdbook mdbook@0.4.52 --no-default-features --features search ;;
esac
exec just "$@"
