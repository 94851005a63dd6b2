//! Figures as they are read for one moment: families of points.

/// What the numbers of a family are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    /// Sums since the bridge began.
    Counter,
    /// Sums since some other time, which is not the same for all points.
    OlderCounter,
    Histogram,
}

/// Labels of a point.
pub type Labels = Vec<(String, String)>;

/// Numbers of one kind and meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    pub name: &'static str,
    pub about: &'static str,
    pub kind: Kind,
    pub points: Vec<Point>,
}

/// A number with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub labels: Labels,
    pub value: Number,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    Plain(f64),
    Spread(Spread),
}

/// A histogram: how many values were below each bound and not below the one before; the last count is of
/// those above all bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    pub bounds: Vec<f64>,
    pub counts: Vec<u64>,
    pub sum: f64,
}
