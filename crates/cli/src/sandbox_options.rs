//! The options of a new sandbox on the command line: one definition for every verb that makes one. A test
//! compares it with the table of options.

use std::path::{Component, Path, PathBuf};

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::failure::CliError;
use super::machine_kind::{self, KindParser};
use super::values::{parse_cpu_millis, parse_memory_mib, parse_size};
use image::Pull;
use machine::MachineKind;
use sandbox::options::{self, Door};
use sandbox::{Name, Preset, SandboxRef, Spec, TemplateOptions};
use services::build::packages::Packages;

/// The heading of these options in help.
pub const HEADING: &str = "Options of the new sandbox";

/// What a sandbox is made of, and its limits.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = HEADING)]
pub struct BaseOptions {
    /// Set the root file system, which is read-only below a writable layer: an image from `image ls`,
    /// or a directory on the process machine (default: the host's root), or an image of the kit or a
    /// file on the other machines (default: full)
    #[arg(long, value_name = "IMAGE")]
    image: Option<PathBuf>,

    #[arg(long, value_name = "MACHINE", env = machine_kind::VARIABLE, hide_env_values = true,
          help = machine_kind::help(), value_parser = KindParser, hide_possible_values = true)]
    machine: Option<MachineKind>,

    /// Set the size of the writable layer, as in 512M or 4G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    scratch: Option<u64>,

    /// Limit the memory of all processes together, in MiB or as in 2G (default: the configuration's)
    #[arg(long, value_name = "MIB", value_parser = parse_memory_mib)]
    memory: Option<u64>,

    /// Limit the number of CPUs, as in 2 or 0.5 (default: the configuration's)
    #[arg(long, value_name = "N", value_parser = parse_cpu_millis)]
    cpus: Option<u32>,

    /// Allow connections to a host: HOST, *.HOST for its subdomains, HOST:PORT, @pypi, @npm, @crates
    /// or @debian for a registry, public for the whole internet, or none; repeatable (default: the
    /// configuration's, or none)
    #[arg(long, value_name = "HOST")]
    egress: Vec<String>,
}

/// The options of every new sandbox.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = HEADING)]
pub struct SandboxOptions {
    #[command(flatten)]
    base: BaseOptions,

    /// When to pull the image from its registry: never, missing (if it is not stored here) or always
    /// (default: the configuration's, or never)
    #[arg(long, value_name = "WHEN")]
    pull: Option<Pull>,

    /// Pass a configured secret as an environment variable; repeatable
    #[arg(long = "secret", value_name = "NAME")]
    secrets: Vec<String>,

    /// Copy a directory to /workspace and copy changes back: a configured workspace, or a path
    #[arg(long, value_name = "NAME|PATH")]
    workspace: Option<PathBuf>,

    /// Set the host name (default: the sandbox's name)
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,

    /// Install Python packages on the image or over the host's root, as in pandas,matplotlib; they
    /// are kept for the next sandbox
    #[arg(long, value_name = "PACKAGES", value_delimiter = ',')]
    pip: Vec<String>,

    /// Install Node.js packages likewise, as in express,zod
    #[arg(long, value_name = "PACKAGES", value_delimiter = ',')]
    npm: Vec<String>,
}

/// The options of a new sandbox that the verb itself owns.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = HEADING)]
pub struct OwnedSandboxOptions {
    #[command(flatten)]
    common: SandboxOptions,

    /// Name the sandbox: NAME or NAMESPACE/NAME (default: a generated name)
    #[arg(long, value_name = "NAME")]
    name: Option<SandboxRef>,

    /// Mount the directory instead of copying it: writes appear at once and no limit applies (process
    /// and qemu machines only; for a configured workspace, set it in the configuration)
    #[arg(long, requires = "workspace")]
    mount: bool,
}

impl BaseOptions {
    /// The options of a template.
    pub fn template(&self) -> Result<TemplateOptions> {
        Ok(TemplateOptions {
            machine: self.machine,
            image: self.image()?,
            memory_mib: self.memory,
            cpu_millis: self.cpus,
            scratch_bytes: self.scratch,
            egress: self.egress(),
            ..TemplateOptions::default()
        })
    }

    fn image(&self) -> Result<Option<String>> {
        let is_virtual = self.machine.unwrap_or_default().is_virtual();
        Ok(match &self.image {
            Some(image) if is_name(image, is_virtual) => Some(image.display().to_string()),
            image => image.as_deref().map(absolute).transpose()?,
        })
    }

    fn egress(&self) -> Option<Vec<String>> {
        (!self.egress.is_empty()).then(|| self.egress.clone())
    }
}

impl SandboxOptions {
    /// The kind of machine, if one was named.
    pub fn machine(&self) -> Option<MachineKind> {
        self.base.machine
    }

    fn workspace(&self) -> Result<Option<String>> {
        Ok(self.workspace.as_deref().map(workspace_of).transpose()?)
    }

    /// The sandbox of a session of tools.
    pub fn preset(&self, namespace: Option<Name>) -> Result<Preset> {
        Ok(Preset {
            namespace,
            machine: self.base.machine,
            memory_mib: self.base.memory,
            cpu_millis: self.base.cpus,
            scratch_bytes: self.base.scratch,
            pull: self.pull,
            hostname: self.hostname.clone(),
            secrets: self.secrets.clone(),
            image: self.base.image()?,
            egress: self.base.egress(),
            workspace: self.workspace()?,
            pip: self.pip.clone(),
            npm: self.npm.clone(),
            ..Preset::default()
        })
    }
}

impl OwnedSandboxOptions {
    pub fn machine(&self) -> Option<MachineKind> {
        self.common.machine()
    }

    pub fn spec(&self) -> Result<Spec> {
        let which = match &self.name {
            Some(which) => which.clone(),
            None => SandboxRef { namespace: Name::default_namespace(), name: Name::generate()? },
        };
        let common = &self.common;
        let base = &common.base;
        Ok(Spec {
            machine: base.machine,
            image: base.image()?,
            pull: common.pull,
            scratch_bytes: base.scratch,
            memory_mib: base.memory,
            cpu_millis: base.cpus,
            egress: base.egress(),
            secrets: common.secrets.clone(),
            workspace: common.workspace()?,
            hostname: common.hostname.clone(),
            mount: self.mount,
            ..Spec::new(which)
        })
    }

    /// The flags that were given, for a verb that finds that it makes no sandbox.
    pub fn given(&self) -> Result<Vec<&'static str>> {
        let spec = self.spec()?;
        // A variable's value is for new sandboxes, whether or not this is one.
        let of_variable = std::env::var(machine_kind::VARIABLE).ok();
        let machine = spec.machine.filter(|kind| of_variable.as_deref() != Some(kind.name()));
        let given = [
            ("name", self.name.is_some()),
            ("machine", machine.is_some()),
            ("image", spec.image.is_some()),
            ("pull", spec.pull.is_some()),
            ("packages", !self.packages().is_empty()),
            ("memory_mib", spec.memory_mib.is_some()),
            ("cpus", spec.cpu_millis.is_some()),
            ("scratch_bytes", spec.scratch_bytes.is_some()),
            ("hostname", spec.hostname.is_some()),
            ("egress", spec.egress.is_some()),
            ("workspace", spec.workspace.is_some()),
            ("mount", spec.mount),
            ("secrets", !spec.secrets.is_empty()),
        ];
        let given = given.into_iter().filter(|(_, is_given)| *is_given);
        let row = |name| options::all().find(|option| option.name == name);
        Ok(given.filter_map(|(name, _)| row(name)?.at(Door::Repl)).collect())
    }

    fn packages(&self) -> Packages {
        Packages { pip: self.common.pip.clone(), npm: self.common.npm.clone() }
    }

    /// Puts the packages that are asked for on the image of a specification.
    pub async fn install_packages(&self, context: &Context, spec: &mut Spec) -> Result<()> {
        let packages = self.packages();
        if !packages.is_empty() {
            super::image::pull::if_wanted(&context.paths, spec).await?;
            super::image::packages::install(context, spec, &packages).await?;
        }
        Ok(())
    }
}

/// Whether an image is given by name: text that looks like a path, or exists as one, is a path.
fn is_name(image: &Path, is_virtual: bool) -> bool {
    let mut components = image.components();
    let is_plain = matches!(components.next(), Some(Component::Normal(_)));
    // A name of the kit is no path, even if a file with that name exists here.
    is_plain && ((is_virtual && components.next().is_none()) || !image.exists())
}

/// A workspace as the bridge takes it: by name, or as a directory that does not depend on ours.
pub fn workspace_of(given: &Path) -> Result<String, CliError> {
    if is_workspace_name(given) { Ok(given.display().to_string()) } else { straight(given) }
}

/// Whether a workspace is given by name: a directory is written with a slash or a dot.
fn is_workspace_name(name: &Path) -> bool {
    let mut components = name.components();
    matches!(components.next(), Some(Component::Normal(_)))
        && components.next().is_none()
        && !name.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// Makes a path absolute, since the daemon has another working directory.
fn absolute(path: &Path) -> Result<String, CliError> {
    let failed = |source| CliError::Unreadable { path: path.to_path_buf(), source };
    let path = path.canonicalize().map_err(failed)?;
    Ok(path.display().to_string())
}

/// The same for a path that must not contain links. A path with one is passed on for the bridge to refuse.
fn straight(path: &Path) -> Result<String, CliError> {
    let real = absolute(path)?;
    let failed = |source| CliError::Unreadable { path: path.to_path_buf(), source };
    let mut straightened = PathBuf::new();
    for component in std::path::absolute(path).map_err(failed)?.components() {
        match component {
            Component::ParentDir => drop(straightened.pop()),
            other => straightened.push(other),
        }
    }
    if straightened == Path::new(&real) { Ok(real) } else { Ok(straightened.display().to_string()) }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::Arguments;
    use sandbox::options::names_at;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        sandbox: OwnedSandboxOptions,
    }

    #[test]
    fn an_image_is_a_name_unless_it_looks_like_a_path_or_is_one() {
        for (image, machine, expected) in [
            ("alpine:3", "process", Some("alpine:3")),
            ("team/app@sha256:x", "process", Some("team/app@sha256:x")),
            ("src", "qemu", Some("src")),
            ("full", "qemu", Some("full")),
            ("./nowhere", "process", None),
            ("../nowhere", "qemu", None),
            ("/usr", "process", Some("/usr")),
        ] {
            let line = ["new", "--image", image, "--machine", machine];
            let Line { sandbox } = Line::try_parse_from(line).expect("a good line");
            let found = sandbox.spec().ok().and_then(|spec| spec.image);
            assert_eq!(found.as_deref(), expected, "{image}");
        }
    }

    /// The options of a verb besides those of its sandbox.
    const OF_VERBS: [(&str, Door, &[&str]); 5] = [
        ("run", Door::Run, &["interactive", "tty", "timeout"]),
        ("start", Door::Start, &["json"]),
        (
            "repl",
            Door::Repl,
            &["lang", "program", "venv", "context", "code", "timeout", "save-displays", "json"],
        ),
        ("mcp", Door::Mcp, &[]),
        ("template create", Door::TemplateVerb, &["start", "ready", "ready-timeout", "warm"]),
    ];

    #[test]
    fn every_verb_has_the_options_that_the_table_says() {
        let command = Arguments::command();
        for (verb, door, own) in OF_VERBS {
            let find = |of: &clap::Command, verb: &str| of.find_subcommand(verb).cloned();
            let verb = verb.split(' ').try_fold(command.clone(), |of, verb| find(&of, verb));
            let verb = verb.expect("the verb is there");
            let shown = verb.get_arguments().filter(|argument| !argument.is_hide_set());
            let named = shown.filter(|argument| !argument.is_positional());
            let named = named.filter_map(|argument| {
                let long = argument.get_long().map(str::to_owned);
                long.or_else(|| Some(argument.get_id().to_string()))
            });
            let mut named: Vec<_> = named.filter(|long| !own.contains(&long.as_str())).collect();
            let mut expected: Vec<_> =
                names_at(door).map(|flag| flag.trim_start_matches("--").to_owned()).collect();
            named.sort();
            expected.sort();
            assert_eq!(named, expected, "{}", verb.get_name());
        }
    }

    #[test]
    fn the_options_of_a_new_sandbox_are_named_when_there_is_none() {
        let line =
            ["x", "--memory", "64", "--egress", "a.org", "--image", "alpine:3", "--npm", "zod"];
        let Line { sandbox } = Line::try_parse_from(line).expect("a good line");
        assert_eq!(
            sandbox.given().expect("a good spec"),
            ["--image", "--pip, --npm", "--memory", "--egress"]
        );
    }
}
