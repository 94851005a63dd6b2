//! Figures in either form: the text of Prometheus, written piece by piece because there are thousands of lines, or
//! families of points.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;
use otel::{Family, Kind, Number, Point, Spread};

/// See the module's description.
pub enum Text {
    Lines(String),
    Families(Vec<Family>),
}

/// Labels of a line.
type Labels<'a> = [(&'a str, &'a str)];

impl Text {
    pub fn lines() -> Self {
        Self::Lines(String::new())
    }

    pub fn families() -> Self {
        Self::Families(Vec::new())
    }

    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Lines(text) => text.into(),
            Self::Families(_) => Bytes::new(),
        }
    }

    pub fn into_families(self) -> Vec<Family> {
        match self {
            Self::Lines(_) => Vec::new(),
            Self::Families(families) => families,
        }
    }

    pub fn family(&mut self, name: &'static str, kind: &str, help: &'static str) {
        match self {
            // Writing to a string does not fail.
            Self::Lines(text) => {
                let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            }
            Self::Families(families) => {
                let kind = match kind {
                    "counter" => Kind::Counter,
                    "histogram" => Kind::Histogram,
                    _ => Kind::Gauge,
                };
                families.push(Family { name, about: help, kind, points: Vec::new() });
            }
        }
    }

    /// What the family counts did not begin with this bridge.
    pub fn counts_from_elsewhere(&mut self) {
        if let Self::Families(families) = self
            && let Some(family) = families.last_mut().filter(|it| it.kind == Kind::Counter)
        {
            family.kind = Kind::OlderCounter;
        }
    }

    pub fn single(&mut self, name: &'static str, kind: &str, help: &'static str, value: f64) {
        self.family(name, kind, help);
        self.line(name, &[], value);
    }

    /// A number of the last family.
    pub fn line(&mut self, name: &str, labels: &Labels<'_>, value: f64) {
        match self {
            Self::Lines(text) => line(text, name, labels, value),
            Self::Families(families) => add(families, labels, Number::Plain(value)),
        }
    }

    /// A histogram of the last family: how many values were below each bound and above the one before, how many
    /// there were, and their sum.
    pub fn spread(
        &mut self,
        name: &str,
        labels: &Labels<'_>,
        bounds: &[f64],
        (counts, all, sum): (&[u64], u64, f64),
    ) {
        match self {
            Self::Lines(text) => {
                let bucket = format!("{name}_bucket");
                let mut below = 0;
                for (bound, count) in bounds.iter().zip(counts) {
                    below += count;
                    let bound = bound.to_string();
                    let labels = [labels, &[("le", bound.as_str())]].concat();
                    line(text, &bucket, &labels, below as f64);
                }
                line(text, &bucket, &[labels, &[("le", "+Inf")]].concat(), all as f64);
                line(text, &format!("{name}_sum"), labels, sum);
                line(text, &format!("{name}_count"), labels, all as f64);
            }
            Self::Families(families) => {
                let above = all.saturating_sub(counts.iter().sum());
                let counts = [counts, &[above]].concat();
                let spread = Spread { bounds: bounds.to_vec(), counts, sum };
                add(families, labels, Number::Spread(spread));
            }
        }
    }
}

fn line(text: &mut String, name: &str, labels: &Labels<'_>, value: f64) {
    text.push_str(name);
    for (number, (label, value)) in labels.iter().enumerate() {
        let opening = if number == 0 { '{' } else { ',' };
        let _ = write!(text, "{opening}{label}=\"{}\"", escaped(value));
    }
    let closing = if labels.is_empty() { "" } else { "}" };
    let _ = writeln!(text, "{closing} {value}");
}

fn add(families: &mut [Family], labels: &Labels<'_>, value: Number) {
    if let Some(family) = families.last_mut() {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        family.points.push(Point { labels: labels.iter().map(own).collect(), value });
    }
}

/// An arbitrary text as the value of a label.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\\', '"', '\n']) {
        return text.into();
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(text: &mut Text) {
        text.single("one", "gauge", "One.", 1.0);
        text.family("some_total", "counter", "Some.");
        text.counts_from_elsewhere();
        text.line("some_total", &[("a", "x\"y")], 2.0);
        text.family("took_seconds", "histogram", "Took.");
        text.spread("took_seconds", &[("a", "b")], &[0.5, 1.0], (&[3, 4], 9, 12.5));
    }

    #[test]
    fn both_forms_have_the_same_figures() {
        let (mut lines, mut families) = (Text::lines(), Text::families());
        write(&mut lines);
        write(&mut families);
        let text = String::from_utf8(lines.into_bytes().to_vec()).unwrap();
        assert_eq!(
            text,
            "# HELP one One.\n# TYPE one gauge\none 1\n\
             # HELP some_total Some.\n# TYPE some_total counter\nsome_total{a=\"x\\\"y\"} 2\n\
             # HELP took_seconds Took.\n# TYPE took_seconds histogram\n\
             took_seconds_bucket{a=\"b\",le=\"0.5\"} 3\ntook_seconds_bucket{a=\"b\",le=\"1\"} 7\n\
             took_seconds_bucket{a=\"b\",le=\"+Inf\"} 9\n\
             took_seconds_sum{a=\"b\"} 12.5\ntook_seconds_count{a=\"b\"} 9\n"
        );
        let families = families.into_families();
        let kinds: Vec<_> = families.iter().map(|family| family.kind).collect();
        assert_eq!(kinds, [Kind::Gauge, Kind::OlderCounter, Kind::Histogram]);
        assert_eq!(families[1].points[0].labels, [("a".to_owned(), "x\"y".to_owned())]);
        let Number::Spread(spread) = &families[2].points[0].value else { panic!("a histogram") };
        assert_eq!(spread.counts, [3, 4, 2]);
    }
}
