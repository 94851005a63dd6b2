//! The state of a repository, from `git status --porcelain=v2 --branch -z`. Pure.

use serde_json::{Value, json};

/// What a client of Daytona reads of it.
pub fn shown(said: &str) -> Value {
    let mut fields = said.split('\0');
    let (mut branch, mut is_detached, mut upstream) = ("", false, None);
    let (mut ahead, mut behind) = (0, 0);
    let mut files = Vec::new();
    while let Some(field) = fields.next() {
        if let Some(header) = field.strip_prefix("# branch.") {
            match header.split_once(' ') {
                Some(("head", "(detached)")) => is_detached = true,
                Some(("head", name)) => branch = name,
                Some(("upstream", name)) => upstream = Some(name),
                Some(("ab", counts)) => {
                    let number = |text: &str| text.get(1..)?.parse::<u64>().ok();
                    let (a, b) = counts.split_once(' ').unwrap_or_default();
                    (ahead, behind) = (number(a).unwrap_or(0), number(b).unwrap_or(0));
                }
                _ => {}
            }
            continue;
        }
        let (kind, rest) = field.split_once(' ').unwrap_or_default();
        // The number of words before a path differs by the kind of the line.
        let file = match kind {
            "?" => Some(("??", rest, "")),
            "1" => changed(rest, 7).map(|(letters, path)| (letters, path, "")),
            "2" => {
                let from = fields.next().unwrap_or_default();
                changed(rest, 8).map(|(letters, path)| (letters, path, from))
            }
            "u" => changed(rest, 9).map(|(_, path)| ("UU", path, "")),
            _ => None,
        };
        if let Some((letters, path, from)) = file {
            let mut letters = letters.chars();
            files.push(json!({
                "name": path,
                "extra": from,
                "staging": word(letters.next()),
                "worktree": word(letters.next()),
            }));
        }
    }
    json!({
        "currentBranch": if is_detached { "HEAD" } else { branch },
        "detached": is_detached,
        "upstream": upstream,
        "branchPublished": upstream.is_some(),
        "ahead": ahead,
        "behind": behind,
        "fileStatus": files,
    })
}

/// The letters of a line, and the path behind so many more words.
fn changed(line: &str, words: usize) -> Option<(&str, &str)> {
    let letters = line.get(..2)?;
    Some((letters, line.splitn(words + 1, ' ').nth(words)?))
}

fn word(letter: Option<char>) -> &'static str {
    match letter {
        Some('?') => "Untracked",
        Some('M' | 'T') => "Modified",
        Some('A') => "Added",
        Some('D') => "Deleted",
        Some('R') => "Renamed",
        Some('C') => "Copied",
        Some('U') => "Updated but unmerged",
        _ => "Unmodified",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_its_branch_and_each_file() {
        let said = "# branch.oid 1234\0# branch.head main\0# branch.upstream origin/main\0\
            # branch.ab +2 -1\0\
            1 .M N... 100644 100644 100644 aaaa bbbb a b.txt\0\
            2 R. N... 100644 100644 100644 aaaa bbbb R100 new\0old\0\
            u UU N... 100644 100644 100644 100644 aaaa bbbb cccc both\0\
            ? untracked file\0";
        let shown = shown(said);
        assert_eq!(shown["currentBranch"], "main");
        assert_eq!((&shown["ahead"], &shown["behind"]), (&json!(2), &json!(1)));
        assert_eq!(shown["branchPublished"], true);
        let file = |name: &str, extra: &str, staging: &str, worktree: &str| json!({ "name": name, "extra": extra, "staging": staging, "worktree": worktree });
        let unmerged = "Updated but unmerged";
        assert_eq!(
            shown["fileStatus"],
            json!([
                file("a b.txt", "", "Unmodified", "Modified"),
                file("new", "old", "Renamed", "Unmodified"),
                file("both", "", unmerged, unmerged),
                file("untracked file", "", "Untracked", "Untracked"),
            ])
        );
    }

    #[test]
    fn a_commit_without_a_branch_is_detached_and_nonsense_is_nothing() {
        assert_eq!(shown("# branch.head (detached)\0")["detached"], true);
        assert_eq!(shown("1 M\0 \0x\0# branch.ab\0")["fileStatus"], json!([]));
    }
}
