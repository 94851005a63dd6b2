//! Medians, and how far they can be trusted. Pure.

/// How often the sample is drawn again from itself.
const RESAMPLES: usize = 2000;
/// The share of these medians that lies below the interval, and above it.
const TAIL: f64 = 0.025;

/// A median with the interval that holds it with 95 % confidence.
pub struct Interval {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Interval {
    /// By the bootstrap: the medians of samples that are drawn from this one, as long as it is.
    pub fn of(sample: Vec<f64>) -> Self {
        let mut draw = Draws(0x9e37_79b9_7f4a_7c15);
        let resampled = |_| {
            let drawn = sample.iter().map(|_| sample[draw.below(sample.len())]).collect();
            median(drawn)
        };
        let mut medians: Vec<f64> = (0..RESAMPLES).map(resampled).collect();
        medians.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| medians[(share * (RESAMPLES - 1) as f64) as usize];
        Self { low: at(TAIL), high: at(1.0 - TAIL), median: median(sample) }
    }
}

pub fn median(mut sample: Vec<f64>) -> f64 {
    sample.sort_unstable_by(f64::total_cmp);
    sample[sample.len() / 2]
}

/// The same numbers in every run, so that the same sample has the same interval: xorshift64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}
