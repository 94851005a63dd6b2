//! The table of all tools.

mod apps;
mod artifacts;
mod code;
pub mod files;
mod info;
mod manim;
mod notebooks;
mod output;
mod ports;
mod sandboxes;
mod shell;
mod snapshots;
mod trial;
mod write;

use std::sync::LazyLock;

use super::tool::Entry;

static ALL: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    [
        code::entries(),
        shell::entries(),
        output::entries(),
        files::entries(),
        write::entries(),
        sandboxes::entries(),
        ports::entries(),
        apps::entries(),
        notebooks::entries(),
        artifacts::entries(),
        manim::entries(),
        info::entries(),
    ]
    .into_iter()
    .flatten()
    .collect()
});

pub fn all() -> &'static [Entry] {
    &ALL
}

pub fn find(name: &str) -> Option<&'static Entry> {
    all().iter().find(|entry| entry.tool.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use access::keys::Access;

    #[test]
    fn every_tool_says_what_it_is_and_what_it_takes_and_gives() {
        let mut names = BTreeSet::new();
        for Entry { tool, .. } in all() {
            assert!(names.insert(&tool.name), "{} is there twice", tool.name);
            assert!(tool.title.is_some() && tool.description.is_some(), "{}", tool.name);
            assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
            assert_eq!(tool.input_schema["additionalProperties"], false, "{}", tool.name);
            let output = tool.output_schema.as_ref().expect("a schema");
            assert_eq!(output["type"], "object", "{}", tool.name);
            for schema in [&tool.input_schema, output] {
                let written = serde_json::to_string(schema).expect("JSON");
                assert!(!written.contains("$ref"), "{}: {written}", tool.name);
            }
            let Value::Object(fields) = &tool.input_schema["properties"] else {
                panic!("{}: no fields", tool.name);
            };
            for (field, schema) in fields {
                assert!(schema.get("description").is_some(), "{}: {field}", tool.name);
            }
        }
    }

    #[test]
    fn tools_that_need_no_right_to_run_are_read_only_and_no_others_are() {
        for Entry { tool, access, .. } in all() {
            let reads =
                tool.annotations.as_ref().and_then(|annotations| annotations.read_only_hint);
            assert_eq!(reads, Some(*access == Access::Read), "{}", tool.name);
        }
    }
}
