//! `[process]`: sandboxes of process machines.

use super::{ConfigOption, Section, put};
use sandbox::{IDS_PER_SANDBOX, ScratchPolicy, Users};

use crate::shown::{quote, quote_path};

pub const SECTION: Section = Section {
    name: "process",
    about: "What sandboxes of process machines see of this host.",
    options: &[
        ConfigOption {
            key: "root",
            values: "a path, or `\"off\"`",
            about: "The directory of this host that is the root of a process sandbox without an \
                image, read-only below a writable layer. `/` is the host's own root: every client \
                can then read what the bridge's user can, except for what is hidden (credentials, \
                the files that this configuration names, directories of bridges). With `off`, a \
                server that asks for keys refuses such sandboxes, and `/` as an image, to its \
                clients; a server with `dev` or without an address, and verbs without a daemon, \
                use `/`.",
            set: |settings, given| put(&mut settings.process.root, given.path_or_off()),
            show: |settings| quote_path(settings.process.root.as_ref()),
        },
        ConfigOption {
            key: "user_namespaces",
            values: "`\"auto\"`, `\"required\"` or `\"off\"`",
            about: "Whether the users of a sandbox that root starts are mapped to ids of the host that \
                    nobody else has. With `auto` they are where the kernel can map the owners of the \
                    image's files, and a warning of the sandbox says where not; with `required` such a \
                    sandbox is refused; with `off` root of a sandbox is root of the host, and only what \
                    the kernel denies it keeps it in.",
            set: |settings, given| {
                settings.process.confinement.users =
                    match given.choice(&["auto", "required", "off"])? {
                        "required" => Users::Required,
                        "off" => Users::Host,
                        _ => Users::Auto,
                    };
                Ok(())
            },
            show: |settings| {
                quote(match settings.process.confinement.users {
                    Users::Auto => "auto",
                    Users::Required => "required",
                    Users::Host => "off",
                })
            },
        },
        ConfigOption {
            key: "ids_first",
            values: "a whole number",
            about: "The first of the host's user and group ids that are set aside for sandboxes. Each \
                    sandbox takes 65,536 of them that no other has. None of them may be an account's, \
                    here or in a directory service.",
            set: |settings, given| {
                let ids = &mut settings.process.confinement;
                // One range must fit below the last id, which is reserved.
                let end = u64::from(u32::MAX - IDS_PER_SANDBOX);
                put(&mut ids.ids_first, given.whole(u64::from(IDS_PER_SANDBOX), end).map(narrow))
            },
            show: |settings| settings.process.confinement.ids_first.to_string(),
        },
        ConfigOption {
            key: "id_ranges",
            values: "a whole number",
            about: "How many sandboxes can have ids of their own at once; the ids are `ids_first` and the \
                    65,536 × `id_ranges` from there on, as far as the kernel has ids.",
            set: |settings, given| {
                put(
                    &mut settings.process.confinement.id_ranges,
                    given.whole(1, u64::from(ID_RANGES_MAX)).map(narrow),
                )
            },
            show: |settings| settings.process.confinement.id_ranges.to_string(),
        },
        ConfigOption {
            key: "processes_max",
            values: "a whole number",
            about: "Processes and threads that one sandbox may have at once.",
            set: |settings, given| {
                put(
                    &mut settings.process.confinement.processes_max,
                    given.whole(PROCESSES_LEAST, PROCESSES_MOST),
                )
            },
            show: |settings| settings.process.confinement.processes_max.to_string(),
        },
        ConfigOption {
            key: "scratch",
            values: "`\"auto\"`, `\"disk\"` or `\"memory\"`",
            about: "Where the writable layers of sandboxes are: in the host's memory, which counts for the \
                    sandbox's, or in a file without a name in the state directory. With `auto` the layer of \
                    a sandbox with a memory limit, or with more than 1 GiB, is on disk where the host can \
                    do that; with `disk` every layer is, and a sandbox is refused where it cannot.",
            set: |settings, given| {
                settings.process.scratch = match given.choice(&["auto", "disk", "memory"])? {
                    "disk" => ScratchPolicy::Disk,
                    "memory" => ScratchPolicy::Memory,
                    _ => ScratchPolicy::Auto,
                };
                Ok(())
            },
            show: |settings| {
                quote(match settings.process.scratch {
                    ScratchPolicy::Auto => "auto",
                    ScratchPolicy::Disk => "disk",
                    ScratchPolicy::Memory => "memory",
                })
            },
        },
    ],
};

/// The agent, its threads and a shell with a few programs.
const PROCESSES_LEAST: u64 = 32;
/// The kernel's own limit of process numbers.
const PROCESSES_MOST: u64 = 4_194_304;
/// As many ranges as there are ids.
const ID_RANGES_MAX: u32 = u32::MAX / IDS_PER_SANDBOX;

/// Of a number that was checked to fit.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
