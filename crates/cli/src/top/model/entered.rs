//! The sessions and contexts of one sandbox.

use std::collections::HashMap;

use sandbox::SandboxRef;

use crate::top::news::Part;

/// The sandbox whose inside is shown.
#[derive(Debug)]
pub struct Entered {
    pub which: SandboxRef,
    pub parts: Vec<Part>,
    pub place: usize,
    at_ms: u64,
    /// Whether the agent has answered.
    pub is_known: bool,
}

impl Entered {
    pub fn new(which: SandboxRef) -> Self {
        Self { which, parts: Vec::new(), place: 0, at_ms: 0, is_known: false }
    }

    pub fn selected(&self) -> Option<&Part> {
        self.parts.get(self.place)
    }

    pub fn step(&mut self, by: isize) {
        self.place = super::moved(self.place, by, self.parts.len());
    }

    /// Takes a newer picture. What was selected stays selected.
    pub fn update(&mut self, mut parts: Vec<Part>, at_ms: u64) {
        let key = |part: &Part| (part.context.is_some(), part.name.clone());
        let before: HashMap<_, _> =
            self.parts.iter().map(|part| (key(part), part.cpu_us)).collect();
        let elapsed_ms = at_ms.saturating_sub(self.at_ms);
        for part in &mut parts {
            let earlier = before.get(&key(part)).copied().flatten();
            part.cpu_percent = match (earlier, part.cpu_us) {
                (Some(earlier), Some(now)) if elapsed_ms > 0 => {
                    #[expect(clippy::cast_precision_loss, reason = "a percentage for a person")]
                    let share = now.saturating_sub(earlier) as f64 / elapsed_ms as f64 / 10.0;
                    Some(share)
                }
                _ => None,
            };
        }
        let selected = self.selected().map(key);
        self.place =
            parts.iter().position(|part| Some(key(part)) == selected).unwrap_or(self.place);
        (self.parts, self.at_ms, self.is_known) = (parts, at_ms, true);
        self.step(0);
    }
}
