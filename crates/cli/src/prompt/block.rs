//! Collects the lines of one input until the input is complete. Pure.

mod shell;

pub(super) use shell::is_open as is_open_shell;

/// The longest indentation that an interpreter may suggest.
const INDENT_BYTES_MAX: usize = 256;

/// The lines so far.
#[derive(Debug, Default)]
pub(super) struct Block {
    text: String,
    lines: usize,
    indent: String,
    /// A line came with its own indentation after ours. A person who types or pastes like that
    /// needs none of ours.
    brings_own: bool,
}

impl Block {
    /// Whether it has no line yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.lines == 0
    }

    pub(super) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// The suggested indentation of the next line.
    pub(super) fn indent(&self) -> &str {
        &self.indent
    }

    /// The text before the next line.
    pub(super) fn before(&self) -> String {
        if self.is_fresh() { String::new() } else { format!("{}\n", self.text) }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Adds the next line, or several that were pasted.
    pub(super) fn push(&mut self, line: &str) {
        if !self.is_fresh() {
            self.text.push('\n');
        }
        let given = line.strip_prefix(self.indent.as_str()).filter(|_| !self.indent.is_empty());
        let line = match given {
            // The empty line that ends a block.
            Some(rest) if rest.trim().is_empty() => "",
            // A line cannot be indented deeper than what was given.
            Some(rest) if rest.starts_with([' ', '\t']) => {
                self.brings_own = true;
                rest
            }
            _ => line,
        };
        self.text.push_str(line);
        self.lines += 1;
    }

    /// Expects another line, which would begin with `indent`.
    pub(super) fn grow(&mut self, indent: &str) {
        // It comes from the guest, and precedes what a person types.
        let blank = indent.chars().all(|c| c == ' ' || c == '\t');
        let fits = blank && !self.brings_own && indent.len() <= INDENT_BYTES_MAX;
        self.indent = if fits { indent.to_owned() } else { String::new() };
    }

    /// Whether more lines are needed, as far as that is known without the interpreter: after an
    /// opening end of a line, everything up to an empty line.
    pub(super) fn looks_open(&self) -> bool {
        let last = self.text.lines().next_back().unwrap_or_default().trim_end();
        let opens = last.ends_with([':', '{', '(', '[', ',', '\\']);
        opens || (self.text.contains('\n') && !self.text.ends_with('\n'))
    }
}

#[cfg(test)]
mod tests;
