//! Saves displays of code as files in a directory. The files are named by a number and an extension
//! chosen here.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use protocol::repl::{Datum, Display, DisplayRole};

use super::super::failure::CliError;

/// Displays that one run may leave: a directory with more is useless, and code that displays
/// something in a loop must not fill the disk.
const DISPLAYS_MAX: usize = 1000;

/// Limits the bytes of all displays, for the same reason.
const BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// File extensions by type; other text is `.txt`, and the rest `.bin`.
const ENDINGS: [(&str, &str); 13] = [
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
    ("image/svg+xml", "svg"),
    ("text/html", "html"),
    ("text/markdown", "md"),
    ("text/latex", "tex"),
    ("text/csv", "csv"),
    ("application/json", "json"),
    ("application/javascript", "js"),
    ("application/pdf", "pdf"),
    ("text/plain", "txt"),
];

/// See the module's description.
pub struct Displays {
    dir: PathBuf,
    count: usize,
    bytes: u64,
    is_full: bool,
    /// File numbers of displays that may be updated, by id.
    by_id: HashMap<String, usize>,
}

/// The result of saving a display.
#[derive(Debug, PartialEq, Eq)]
pub enum Saved {
    Files(Vec<PathBuf>),
    /// The first display that exceeds the limit.
    TooMany,
    Nothing,
}

impl Displays {
    pub fn into(dir: &Path) -> Result<Self, CliError> {
        let failed = |source| CliError::Unwritable { path: dir.to_owned(), source };
        fs::create_dir_all(dir).map_err(failed)?;
        Ok(Self { dir: dir.to_owned(), count: 0, bytes: 0, is_full: false, by_id: HashMap::new() })
    }

    /// Writes all forms of a display except its plain text, which needs no file. An update replaces
    /// what it updates.
    pub fn save(&mut self, shown: &Display) -> Result<Saved, CliError> {
        let forms: Vec<&Datum> = rich_forms(shown).collect();
        if forms.is_empty() {
            return Ok(Saved::Nothing);
        }
        if self.is_full {
            return Ok(Saved::Nothing);
        }
        let known = shown.id.as_ref().and_then(|id| self.by_id.get(id)).copied();
        let known = known.filter(|_| shown.role == DisplayRole::Update);
        let number = known.unwrap_or(self.count + 1);
        // Replaced files count, too: code can update without end.
        let bytes: usize = forms.iter().map(|form| form.data.as_bytes().len()).sum();
        if number > DISPLAYS_MAX || self.bytes + bytes as u64 > BYTES_MAX {
            self.is_full = true;
            return Ok(Saved::TooMany);
        }
        self.bytes += bytes as u64;
        self.count = self.count.max(number);
        if let Some(id) = &shown.id {
            self.by_id.insert(id.clone(), number);
        }
        let mut files: Vec<PathBuf> = Vec::new();
        for form in forms {
            let path = self.dir.join(format!("{number:03}.{}", ending(&form.mime)));
            if !files.contains(&path) {
                let failed = |source| CliError::Unwritable { path: path.clone(), source };
                fs::write(&path, form.data.as_bytes()).map_err(failed)?;
                files.push(path);
            }
        }
        Ok(Saved::Files(files))
    }
}

/// The forms that a terminal cannot show.
pub fn rich_forms(shown: &Display) -> impl Iterator<Item = &Datum> {
    shown.data.iter().filter(|form| form.mime != "text/plain")
}

/// The plain-text form.
pub fn plain_form(shown: &Display) -> Option<&Datum> {
    shown.data.iter().find(|form| form.mime == "text/plain")
}

fn ending(mime: &str) -> &'static str {
    let known = ENDINGS.iter().find(|(known, _)| *known == mime).map(|(_, ending)| *ending);
    known.unwrap_or_else(|| match mime {
        _ if mime.ends_with("+json") => "json",
        _ if mime.starts_with("text/") => "txt",
        _ => "bin",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(role: DisplayRole, id: Option<&str>, forms: &[(&str, &str)]) -> Display {
        let data = forms
            .iter()
            .map(|(mime, data)| Datum { mime: (*mime).to_owned(), data: (*data).into() })
            .collect();
        Display { role, id: id.map(str::to_owned), data, metadata: None }
    }

    #[test]
    fn rich_forms_become_files_and_updates_replace_them() {
        let dir = std::env::temp_dir().join(format!("burrow-displays-{}", std::process::id()));
        let mut displays = Displays::into(&dir).expect("a directory");
        let plain = shown(DisplayRole::Shown, None, &[("text/plain", "x")]);
        assert_eq!(displays.save(&plain).expect("nothing to do"), Saved::Nothing);
        let forms = [("text/plain", "x"), ("image/png", "old"), ("text/html", "<b>")];
        let first = shown(DisplayRole::Shown, Some("a"), &forms);
        let files = vec![dir.join("001.png"), dir.join("001.html")];
        assert_eq!(displays.save(&first).expect("written"), Saved::Files(files));
        let other = shown(DisplayRole::Value, None, &[("image/../../x", "b")]);
        let files = vec![dir.join("002.bin")];
        assert_eq!(displays.save(&other).expect("written"), Saved::Files(files));
        let update = shown(DisplayRole::Update, Some("a"), &[("image/png", "new")]);
        let files = vec![dir.join("001.png")];
        assert_eq!(displays.save(&update).expect("written"), Saved::Files(files));
        assert_eq!(fs::read(dir.join("001.png")).expect("a file"), b"new");
        let many = (0..2 * DISPLAYS_MAX).map(|_| displays.save(&other).expect("written"));
        assert_eq!(many.filter(|saved| *saved == Saved::TooMany).count(), 1, "said once");
        assert_eq!(fs::read_dir(&dir).expect("a directory").count(), DISPLAYS_MAX + 1);
        fs::remove_dir_all(&dir).expect("removable");
    }
}
