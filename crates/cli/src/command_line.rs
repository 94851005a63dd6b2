//! Checks of a command line that clap cannot make: an unknown option before a command that may have any, the verb that
//! a mistyped one means, and docker's words that mean something else here. The error names what to write.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Command, CommandFactory};

use super::exit::Exit;
use super::failure::CliError;
use super::repl::language::Language;
use super::{Arguments, output};
use host::similar::{all_nearest, nearest};

/// Verbs that a refusal suggests.
const SUGGESTED_MAX: usize = 3;

/// Other programs' words for what has another name here.
const OTHER_WORDS: [(&str, &str); 11] = [
    ("build", "image build"),
    ("pull", "image pull"),
    ("images", "image ls"),
    ("rmi", "image rm"),
    ("commit", "image commit"),
    ("save", "image save"),
    ("load", "image import"),
    ("import", "image import"),
    ("create", "start"),
    ("unpause", "resume"),
    ("port", "port-forward"),
];

/// Prints clap's output. Help and the version are results; anything else is our failure, as for docker.
pub fn report(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        let _ = error.print();
        return Exit::SUCCESS;
    }
    let typed: Vec<OsString> = std::env::args_os().collect();
    let refusal = refusal_of(error)
        .or_else(|| unknown_verb(&Arguments::command(), error, &typed))
        .or_else(|| named_as_language(error, &typed));
    match refusal {
        Some(refusal) => output::note(&output::printable(&refusal.to_string())),
        None => output::note_verbatim(&error.render().to_string()),
    }
    Exit::FAILED_ITSELF
}

/// The refusal of an unknown option, in the words of all others.
fn refusal_of(error: &clap::Error) -> Option<CliError> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let option = text(ContextKind::InvalidArg).filter(|option| option.starts_with('-'))?;
    let meant = text(ContextKind::SuggestedArg);
    Some(CliError::UnknownOption { option, meant })
}

/// The refusal of a verb that there is not, with those that may be meant. Hidden ones never are.
fn unknown_verb(program: &Command, error: &clap::Error, typed: &[OsString]) -> Option<CliError> {
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    // The verbs before it say whose it would be.
    let (mut parent, mut path) = (program, String::new());
    for word in typed.iter().skip(1).take_while(|word| *word != OsStr::new(wrong)) {
        let Some(verb) = parent.find_subcommand(word) else { continue };
        parent = verb;
        path.push_str(verb.get_name());
        path.push(' ');
    }
    let own = parent.get_subcommands().filter(|verb| !verb.is_hide_set());
    let own: Vec<(&str, String)> =
        own.map(|verb| (verb.get_name(), format!("{path}{}", verb.get_name()))).collect();
    // Below a verb, other programs' words are for that verb alone.
    let others = OTHER_WORDS.iter().filter(|(_, verb)| verb.starts_with(&path));
    let others = others.map(|(word, verb)| (*word, (*verb).to_owned()));
    let known: Vec<(&str, String)> = own.into_iter().chain(others).collect();
    let words = known.iter().map(|(word, _)| *word);
    let mut meant: Vec<String> = Vec::new();
    for near in all_nearest(wrong, words) {
        let verbs = known.iter().filter(|(word, _)| *word == near).map(|(_, verb)| verb.clone());
        let verbs: Vec<_> = verbs.filter(|verb| !meant.contains(verb)).collect();
        meant.extend(verbs);
    }
    meant.truncate(SUGGESTED_MAX);
    Some(CliError::UnknownVerb { verb: format!("{path}{wrong}"), of: path, meant })
}

/// The refusal of `attach --repl work`: a sandbox where a language belongs.
fn named_as_language(error: &clap::Error, typed: &[OsString]) -> Option<CliError> {
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let at = typed.iter().position(|word| word == "--repl")?;
    let name = typed.get(at + 1)?.to_str().filter(|word| Language::called(word).is_none())?;
    Some(CliError::OtherWords {
        what: format!("--repl {name}"),
        why: "the word behind --repl is a language",
        instead: format!(
            "write `host-bridge attach --repl {} {name}`",
            Language::default().as_str()
        ),
    })
}

/// Refuses a command that begins with an option: the verb does not have it, and no program has such a name.
/// After `--` anything is a command.
pub fn check_command(verb: &str, command: &[OsString]) -> Result<(), CliError> {
    let Some(first) = command.first() else { return Ok(()) };
    let typed: Vec<OsString> = std::env::args_os().collect();
    match unknown_option(&Arguments::command(), verb, first, &typed) {
        Some(refusal) => Err(refusal),
        None => Ok(()),
    }
}

fn unknown_option(
    program: &Command,
    verb: &str,
    first: &OsStr,
    typed: &[OsString],
) -> Option<CliError> {
    let word = first.to_str().filter(|word| word.starts_with('-') && word.len() > 1)?;
    if typed.windows(2).any(|pair| pair[0] == "--" && pair[1] == first) {
        return None;
    }
    let option = word.split('=').next().unwrap_or(word);
    let own = program.find_subcommand(verb).into_iter().flat_map(Command::get_arguments);
    let known = own.filter(|argument| !argument.is_hide_set());
    let known = known.filter_map(clap::Arg::get_long);
    let long = option.strip_prefix("--").unwrap_or_default();
    let meant = nearest(long, known).filter(|_| !long.is_empty());
    let meant = meant.map(|meant| format!("--{meant}"));
    Some(CliError::UnknownOption { option: option.to_owned(), meant })
}

/// Options of docker's that `run` and `start` refuse by name.
#[derive(Debug, Args)]
pub struct DockerOptions {
    #[arg(short, long, hide = true, value_name = "VOLUME")]
    volume: Vec<String>,

    #[arg(short, long, hide = true, value_name = "PORTS")]
    publish: Vec<String>,
}

impl DockerOptions {
    pub fn check(&self) -> Result<(), CliError> {
        if let Some(volume) = self.volume.first() {
            let directory = volume.split(':').next().unwrap_or_default();
            return Err(CliError::OtherWords {
                what: format!("-v {volume}"),
                why: "a sandbox has one directory of the host, at /workspace",
                instead: format!(
                    "write --workspace {directory} for a copy that is copied back, and --mount with it \
                     for the directory itself"
                ),
            });
        }
        if let Some(ports) = self.publish.first() {
            return Err(CliError::OtherWords {
                what: format!("-p {ports}"),
                why: "ports are forwarded to a sandbox that runs",
                instead: format!(
                    "write `host-bridge start --name NAME`, then `host-bridge port-forward NAME {ports}`"
                ),
            });
        }
        Ok(())
    }
}

/// Refuses `run --detach`: `run` is for one command, and waits for it.
pub fn check_run(is_detached: bool) -> Result<(), CliError> {
    if !is_detached {
        return Ok(());
    }
    Err(CliError::OtherWords {
        what: "-d".to_owned(),
        why: "`run` waits for its command, and removes the sandbox then",
        instead:
            "write `host-bridge start --name NAME`, then `host-bridge exec -d NAME -- COMMAND`"
                .to_owned(),
    })
}

/// Refuses words after the options of `start`, which docker reads as an image and a command.
pub fn check_start(words: &[OsString]) -> Result<(), CliError> {
    let typed: Vec<OsString> = std::env::args_os().collect();
    start_refusal(words, &typed).map_or(Ok(()), Err)
}

/// Docker's first word names an image; behind `--` there is only a command.
fn start_refusal(words: &[OsString], typed: &[OsString]) -> Option<CliError> {
    let text = |words: &[OsString]| {
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    };
    let (image, command) = match words {
        [] => return None,
        words if typed.iter().any(|word| word == "--") => (String::new(), words),
        [image, command @ ..] => (format!(" --image {}", image.to_string_lossy()), command),
    };
    let then = if command.is_empty() {
        String::new()
    } else {
        format!(", then `host-bridge exec NAME -- {}`", text(command))
    };
    Some(CliError::OtherWords {
        what: format!("start {}", words[0].to_string_lossy()),
        why: "`start` takes options alone, and starts no command",
        instead: format!("write `host-bridge start --name NAME{image}`{then}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(verb: &str, first: &str, typed: &[&str]) -> Option<String> {
        let typed: Vec<OsString> = typed.iter().map(OsString::from).collect();
        let refusal = unknown_option(&Arguments::command(), verb, OsStr::new(first), &typed);
        refusal.map(|refusal| refusal.to_string())
    }

    #[test]
    fn an_unknown_option_before_the_command_is_named_with_what_was_meant() {
        for (verb, first, expected) in [
            ("run", "--timout", "unknown option --timout; did you mean --timeout?"),
            ("run", "--memmory=64", "unknown option --memmory; did you mean --memory?"),
            ("exec", "--sesion", "unknown option --sesion; did you mean --session?"),
            ("run", "--qqqqqqqqq", "unknown option --qqqqqqqqq"),
            ("run", "-q", "unknown option -q"),
        ] {
            assert_eq!(refused(verb, first, &[verb, first]).as_deref(), Some(expected));
        }
    }

    #[test]
    fn behind_two_dashes_anything_is_a_command() {
        assert_eq!(refused("run", "--timout", &["run", "--", "--timout"]), None);
        assert_eq!(refused("run", "ls", &["run", "ls"]), None);
        assert_eq!(refused("run", "-", &["run", "-"]), None);
    }

    #[test]
    fn clap_and_this_say_the_same_of_an_unknown_option() {
        let parsed = Arguments::command().try_get_matches_from(["x", "start", "--lable", "a=b"]);
        let refusal = refusal_of(&parsed.expect_err("there is none")).expect("it is refused");
        assert_eq!(refusal.to_string(), "unknown option --lable; did you mean --label?");
    }

    #[test]
    fn a_mistyped_verb_is_answered_with_those_that_are_nearest() {
        let said = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let error = Arguments::command().try_get_matches_from(&words).expect_err(line);
            unknown_verb(&Arguments::command(), &error, &words).expect(line).to_string()
        };
        for (line, expected) in [
            ("x buidl", "unknown verb buidl; did you mean image build?"),
            ("x build", "unknown verb build; did you mean image build?"),
            ("x rnu", "unknown verb rnu; did you mean run?"),
            ("x --no-daemon imgae ls", "unknown verb imgae; did you mean image?"),
            ("x strat", "unknown verb strat; did you mean start?"),
            ("x stat", "unknown verb stat; did you mean start or stats?"),
            ("x creat", "unknown verb creat; did you mean start?"),
            ("x image sl", "unknown verb image sl; did you mean image ls?"),
            ("x image laod", "unknown verb image laod; did you mean image import?"),
            (
                "x context creat",
                "unknown verb context creat; `host-bridge context --help` lists the verbs",
            ),
            ("x help buidl", "unknown verb buidl; did you mean image build?"),
            // Hidden, and nobody means it.
            ("x __guar", "unknown verb __guar; `host-bridge --help` lists the verbs"),
            ("x frobnicate", "unknown verb frobnicate; `host-bridge --help` lists the verbs"),
        ] {
            assert_eq!(said(line), expected);
        }
    }

    #[test]
    fn words_of_other_programs_are_verbs_that_there_are() {
        let program = Arguments::command();
        for (word, verb) in OTHER_WORDS {
            let found =
                verb.split(' ').try_fold(&program, |parent, verb| parent.find_subcommand(verb));
            assert!(found.is_some(), "{verb}");
            assert!(program.find_subcommand(word).is_none(), "{word} is a verb itself");
        }
    }

    #[test]
    fn a_sandbox_in_place_of_a_language_is_answered_with_what_to_write() {
        let said = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let error = Arguments::command().try_get_matches_from(&words).expect_err("no sandbox");
            named_as_language(&error, &words).map(|refusal| refusal.to_string())
        };
        let refusal = said("x attach --repl work").expect("it is refused");
        assert!(refusal.ends_with("write `host-bridge attach --repl python work`"), "{refusal}");
        assert_eq!(said("x attach --repl python"), None);
    }

    #[test]
    fn words_of_docker_are_answered_with_what_to_write() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let refusal = |line: &str, typed: &str| {
            start_refusal(&words(line), &words(typed)).expect("no words").to_string()
        };
        let said = refusal("alpine sh -c true", "start alpine sh -c true");
        assert!(said.contains("--image alpine`, then `host-bridge exec NAME -- sh -c true`"));
        let said = refusal("sleep 5", "start --name one -- sleep 5");
        assert!(said.contains("start --name NAME`, then `host-bridge exec NAME -- sleep 5`"));
        let given = DockerOptions { volume: vec![".:/work".to_owned()], publish: Vec::new() };
        let refusal = given.check().expect_err("no volumes").to_string();
        assert!(refusal.contains("-v .:/work") && refusal.contains("--workspace ."), "{refusal}");
        let given = DockerOptions { volume: Vec::new(), publish: vec!["8080:80".to_owned()] };
        let refusal = given.check().expect_err("no ports").to_string();
        assert!(refusal.contains("port-forward NAME 8080:80"), "{refusal}");
        assert!(check_run(true).is_err() && check_run(false).is_ok() && check_start(&[]).is_ok());
    }
}
