//! The blocks of a page: what is pasted into a shell, what it prints, and what is written into the
//! configuration. Pure.

const NOT_RUN: &str = "<!-- not run: ";
const ANYTHING: char = '…';

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `sh`: what is pasted.
    Commands,
    /// `toml`: what the configuration has from here on.
    Configuration,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub kind: Kind,
    /// Where it begins.
    pub line: usize,
    pub text: String,
    pub not_run: Option<String>,
    /// What it prints, as the page says.
    pub printed: Vec<String>,
}

/// The blocks of both kinds, in their order.
pub(super) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    let mut before = "";
    // Whether the last thing on the page was a block of commands.
    let mut follows = false;
    while let Some((at, line)) = lines.next() {
        // A block within a list is further in.
        let line = line.trim_start();
        if let Some(language) = line.strip_prefix("```") {
            let body = lines.by_ref().take_while(|(_, line)| line.trim_start() != "```");
            let body: Vec<_> = body.map(|(_, line)| line).collect();
            let kind = match language {
                "sh" => Some(Kind::Commands),
                "toml" => Some(Kind::Configuration),
                _ => None,
            };
            if let Some(kind) = kind {
                let not_run = before.strip_prefix(NOT_RUN).map(|reason| {
                    reason.strip_suffix(" -->").expect("the comment ends").to_owned()
                });
                let text = body.join("\n");
                blocks.push(Block { kind, line: at + 1, text, not_run, printed: Vec::new() });
            } else if language == "text" && follows {
                let block = blocks.last_mut().expect("one is before");
                block.printed = body.into_iter().map(str::to_owned).collect();
            }
            follows = kind == Some(Kind::Commands);
        } else if !line.trim().is_empty() {
            follows = false;
        }
        before = line;
    }
    blocks
}

/// Whether `line` is what `written` says, in which `…` is anything.
pub(super) fn is_like(line: &str, written: &str) -> bool {
    let mut pieces = written.split(ANYTHING);
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let pieces: Vec<_> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[test]
fn blocks_are_read_as_they_are_written() {
    let text = "a\n```sh\nb\nc\n```\n```text\nd …\n```\n<!-- not run: e -->\n```sh\nf\n```\nx\n```text\ng\n```\n\
                ```toml\nh\n```\n```json\ni\n```\n";
    let [first, second, third] = &blocks(text)[..] else { panic!("three blocks") };
    assert_eq!((first.line, first.text.as_str(), &first.not_run), (2, "b\nc", &None));
    assert_eq!(first.printed, ["d …"]);
    assert_eq!((second.not_run.as_deref(), second.printed.len()), (Some("e"), 0));
    assert_eq!((third.kind, third.text.as_str()), (Kind::Configuration, "h"));
    for (line, written, like) in [
        ("abc", "abc", true),
        ("abcd", "abc", false),
        ("abcd", "ab…", true),
        ("abcd", "a…c…", true),
        ("abcd", "…b…d", true),
        ("abcd", "…x…", false),
        ("xab", "ab…", false),
    ] {
        assert_eq!(is_like(line, written), like, "{line} {written}");
    }
}
