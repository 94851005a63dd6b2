//! What a run offers by itself: displays, and files that it names. Pure.
//!
//! One form of each display is kept: a picture before a page. Plain text is part of the run's own answer.

use protocol::Text;
use protocol::repl::{self, Datum, DisplayRole, Happening};

use super::left_out::{LeftOuts, Reason};
use super::limits::{FIGURES_BYTES_MAX, FIGURES_MAX, OFFERED_FILES_MAX};

/// The forms that are kept, the best first.
const FORMS: [&str; 15] = [
    "image/png",
    "image/jpeg",
    "image/webp",
    "image/gif",
    "image/svg+xml",
    "image/bmp",
    "video/mp4",
    "video/webm",
    "audio/mpeg",
    "audio/wav",
    "audio/ogg",
    "application/pdf",
    "text/html",
    "text/latex",
    "text/markdown",
];

/// Something that was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    id: Option<String>,
    pub mime: &'static str,
    pub bytes: Text,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Offers {
    figures: Vec<Figure>,
    files: Vec<repl::Artifact>,
    bytes: usize,
    left_out: LeftOuts,
    /// How many there were, including those without room.
    shown: usize,
}

impl Offers {
    /// Records an event of a run. `has_room` is asked for the memory that this needs.
    pub fn see(&mut self, what: &Happening, has_room: impl FnOnce(usize) -> bool) {
        match what {
            Happening::Display(shown) => self.show(shown, has_room),
            Happening::Artifact(file) => self.offer(file),
            _ => {}
        }
    }

    /// Figures, files, and what did not fit.
    pub fn into_parts(self) -> (Vec<Figure>, Vec<repl::Artifact>, LeftOuts) {
        (self.figures, self.files, self.left_out)
    }

    fn show(&mut self, shown: &repl::Display, has_room: impl FnOnce(usize) -> bool) {
        let Some((mime, form)) = best(&shown.data) else { return };
        let before = (shown.role == DisplayRole::Update && shown.id.is_some())
            .then(|| self.figures.iter().position(|known| known.id == shown.id))
            .flatten();
        let freed = before.map_or(0, |at| self.figures[at].bytes.as_bytes().len());
        let bytes = form.data.as_bytes().len();
        let has_place = before.is_some() || self.figures.len() < FIGURES_MAX;
        if before.is_none() {
            self.shown += 1;
        }
        if !has_place || self.bytes - freed + bytes > FIGURES_BYTES_MAX || !has_room(bytes) {
            let reason =
                Reason::TooMuchShown { bytes_max: FIGURES_BYTES_MAX, count_max: FIGURES_MAX };
            self.left_out.add_named(&format!("figure-{}", self.shown), &reason);
            return;
        }
        self.bytes = self.bytes - freed + bytes;
        let figure = Figure { id: shown.id.clone(), mime, bytes: form.data.clone() };
        match before {
            Some(at) => self.figures[at] = figure,
            None => self.figures.push(figure),
        }
    }

    fn offer(&mut self, file: &repl::Artifact) {
        if self.files.iter().any(|known| known.path == file.path) {
            return;
        }
        if self.files.len() == OFFERED_FILES_MAX {
            let reason = Reason::TooMany { count_max: OFFERED_FILES_MAX };
            self.left_out.add(&file.path, &reason);
            return;
        }
        self.files.push(file.clone());
    }
}

fn best(forms: &[Datum]) -> Option<(&'static str, &Datum)> {
    FORMS.iter().find_map(|mime| {
        let form = forms.iter().find(|form| form.mime == *mime)?;
        Some((*mime, form))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(role: DisplayRole, id: Option<&str>, forms: &[(&str, &[u8])]) -> Happening {
        let data = forms
            .iter()
            .map(|(mime, data)| Datum { mime: (*mime).to_owned(), data: data.to_vec().into() });
        let (id, data) = (id.map(str::to_owned), data.collect());
        Happening::Display(repl::Display { role, id, data, metadata: None })
    }

    #[test]
    fn a_picture_is_kept_before_a_page_and_text_is_not() {
        let mut offers = Offers::default();
        let role = DisplayRole::Shown;
        offers.see(&shown(role, None, &[("text/html", b"<p>"), ("image/png", b"P")]), |_| true);
        offers.see(&shown(role, None, &[("text/plain", b"<Figure>")]), |_| true);
        offers.see(&shown(DisplayRole::Value, None, &[("text/html", b"<p>")]), |_| true);
        let (figures, _, left_out) = offers.into_parts();
        let mimes: Vec<_> = figures.iter().map(|figure| figure.mime).collect();
        assert_eq!(mimes, ["image/png", "text/html"]);
        assert_eq!(left_out, LeftOuts::default());
    }

    #[test]
    fn an_update_replaces_and_what_has_no_room_is_reported() {
        let mut offers = Offers::default();
        let png = |role, bytes: &[u8]| shown(role, Some("bar"), &[("image/png", bytes)]);
        offers.see(&png(DisplayRole::Shown, b"1"), |_| true);
        offers.see(&png(DisplayRole::Update, b"2"), |_| true);
        let large = vec![0; FIGURES_BYTES_MAX];
        offers.see(&shown(DisplayRole::Shown, None, &[("image/png", &large)]), |_| true);
        offers.see(&shown(DisplayRole::Shown, None, &[("image/png", b"3")]), |_| false);
        let (figures, _, left_out) = offers.into_parts();
        assert_eq!((figures.len(), figures[0].bytes.as_bytes()), (1, b"2".as_slice()));
        let names: Vec<_> = left_out.listed.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(names, ["figure-2", "figure-3"]);
    }

    #[test]
    fn a_file_is_offered_once() {
        let mut offers = Offers::default();
        let file = |path: &str| {
            let (path, name) = (path.into(), "x".to_owned());
            Happening::Artifact(repl::Artifact { path, name, mime: "a/b".to_owned(), bytes: 1 })
        };
        offers.see(&file("/a"), |_| true);
        offers.see(&file("/a"), |_| true);
        for at in 0..OFFERED_FILES_MAX {
            offers.see(&file(&format!("/{at}")), |_| true);
        }
        let (_, files, left_out) = offers.into_parts();
        assert_eq!((files.len(), left_out.listed.len()), (OFFERED_FILES_MAX, 1));
    }
}
