//! Whole recipes, generated from typical parts.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use image::dockerfile::limits::{STEPS_MAX, WORD_BYTES_MAX};

/// An argument of an instruction.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z/.]{1,8}",
        "[a-z]{1,3}=[a-z$\"'{}]{0,6}",
        Just("$x".to_owned()),
        Just("${x:-${y:+z}}".to_owned()),
        Just("${x".to_owned()),
        Just("\"two words\"".to_owned()),
        Just("'never closed".to_owned()),
        Just("<<END".to_owned()),
        Just("<<-'END'".to_owned()),
        Just("<<\"a b\"".to_owned()),
        Just("[\"a\", \"b\"]".to_owned()),
        Just("[\"a\",".to_owned()),
        Just("--from=0".to_owned()),
        Just("--from=one".to_owned()),
        Just("--from=scratch".to_owned()),
        Just("--chown=$x:1".to_owned()),
        Just("--exclude=*.$x".to_owned()),
        Just("--exclude".to_owned()),
        Just("--mount=type=cache".to_owned()),
        Just("80-90/udp".to_owned()),
        "\\PC{0,6}",
    ]
}

/// One line, or a continuation of the previous one.
fn fragment() -> impl Strategy<Value = String> {
    let keyword = prop::sample::select(vec![
        "FROM",
        "from",
        "ARG",
        "ENV",
        "LABEL",
        "RUN",
        "COPY",
        "ADD",
        "WORKDIR",
        "USER",
        "EXPOSE",
        "VOLUME",
        "STOPSIGNAL",
        "SHELL",
        "CMD",
        "ENTRYPOINT",
        "HEALTHCHECK",
        "ONBUILD",
        "",
    ]);
    let end = prop::sample::select(vec!["", "", "", "", " \\", " `"]);
    let line = (keyword, prop::collection::vec(word(), 0..5), end);
    let line = line.prop_map(|(keyword, words, end)| format!("{keyword} {}{end}", words.join(" ")));
    let fixed = prop::sample::select(vec![
        "# a comment",
        "# escape=`",
        "",
        "END",
        "\tEND",
        "a b",
        "FROM base AS one",
        "FROM one",
        "FROM ${x:-base} AS two",
        "FROM scratch",
        "FROM --platform=plan9/mips base",
        "ARG x=1",
        "ARG y=$x$x$x$x$x$x$x$x",
        "COPY --from=one /a /b",
        "COPY <<END /x",
        "RUN <<END",
    ]);
    prop_oneof![3 => line, 2 => fixed.prop_map(str::to_owned)]
}

/// The beginning of a recipe: typical ones, or anything.
fn beginning() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["FROM base\n", "ARG x=2\nFROM base AS one\n", ""])
}

/// A directory for one recipe, which goes away with it.
struct TestContext(PathBuf);

impl TestContext {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("burrow-recipes-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for TestContext {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

proptest! {
    #[test]
    fn any_recipe_is_a_plan_or_says_the_file_and_the_line(
        begin in beginning(),
        fragments in prop::collection::vec(fragment(), 0..40),
    ) {
        let text = format!("{begin}{}\n", fragments.join("\n"));
        let place = TestContext::new();
        fs::write(place.0.join(DOCKERFILE), &text).expect("a recipe");
        match Plan::read(BuildRequest { context: place.0.clone(), ..BuildRequest::default() }) {
            Ok(plan) => {
                prop_assert!(!plan.stages.is_empty() && plan.stages.is_sorted());
                let steps: usize = plan.recipe.stages.iter().map(|stage| stage.steps.len()).sum();
                prop_assert!(steps <= STEPS_MAX);
                // A stage begins from an earlier one, so there is no cycle.
                for (at, from) in plan.from.iter().enumerate() {
                    prop_assert!(!matches!(from, From::Stage(other) if *other >= at));
                }
                prop_assert!(plan.before.values().all(|value| value.len() <= WORD_BYTES_MAX));
                let lines = plan.recipe.stages.iter().flat_map(|stage| &stage.steps);
                prop_assert!(lines.map(|step| step.line).is_sorted());
                let _ = (plan.images(), plan.unused());
            }
            Err(error) => {
                let file = place.0.join(DOCKERFILE).display().to_string();
                let message = error.to_string();
                let rest = message.strip_prefix(&format!("{file}:"));
                let line = rest.and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
                let line = line.expect("a line is named");
                prop_assert!((1..=text.lines().count()).contains(&line), "{message}\n{text}");
            }
        }
    }
}
