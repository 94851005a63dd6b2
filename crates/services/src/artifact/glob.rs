//! Patterns of paths, as people write them: `*` and `?` within a name, `**` for any directories. Pure.

/// Nobody writes a longer pattern.
const PATTERN_BYTES_MAX: usize = 4096;

/// Whether a path matches a pattern. Both are split at slashes first, so that no `*` reaches into
/// another directory.
pub fn matches(pattern: &[u8], path: &[u8]) -> bool {
    if pattern.len() > PATTERN_BYTES_MAX {
        return false;
    }
    let parts = |text: &[u8]| -> Vec<Vec<u8>> {
        let parts =
            text.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        parts.map(<[u8]>::to_vec).collect()
    };
    let (pattern, path) = (parts(pattern), parts(path));
    wild(
        &pattern,
        &path,
        |part| part.as_slice() == b"**",
        |pattern, name| wild(pattern, name, |c| *c == b'*', |c, byte| *c == b'?' || c == byte),
    )
}

/// Matches a sequence with a pattern in which `any` stands for any number of items. The time is at most the
/// product of both lengths: after another `any`, what preceded it is not tried again.
fn wild<P, T>(
    pattern: &[P],
    things: &[T],
    any: impl Fn(&P) -> bool,
    one: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut at, mut thing) = (0, 0);
    let mut again: Option<(usize, usize)> = None;
    while thing < things.len() {
        match pattern.get(at) {
            Some(part) if any(part) => {
                again = Some((at, thing));
                at += 1;
            }
            Some(part) if one(part, &things[thing]) => {
                at += 1;
                thing += 1;
            }
            _ => match &mut again {
                Some((star, taken)) => {
                    *taken += 1;
                    (at, thing) = (*star + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_names_and_directories() {
        let matches = |pattern: &str, path: &str| matches(pattern.as_bytes(), path.as_bytes());
        assert!(matches("/w/*.gif", "/w/a.gif") && matches("/w/a?.gif", "/w/ab.gif"));
        assert!(matches("/w/**/*.mp4", "/w/a/b/c.mp4") && matches("/w/**/*.mp4", "/w/c.mp4"));
        assert!(matches("/w/**", "/w/a/b") && matches("/w/./out/", "/w/out"));
        assert!(!matches("/w/*.gif", "/w/a/b.gif") && !matches("/w/a?.gif", "/w/a.gif"));
        assert!(!matches("/w/**/x", "/w/a/y") && !matches("", "/a"));
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = format!("/{}b", "*a".repeat(2000));
        assert!(!matches(pattern.as_bytes(), format!("/{}", "a".repeat(4000)).as_bytes()));
    }
}
