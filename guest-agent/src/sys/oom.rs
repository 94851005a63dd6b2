//! Makes the kernel kill a program before the agent when memory runs out.
//!
//! `boot` opens the score, `spawn` raises it around births, of which there can be several at once. A child has its parent's score from its
//! first instruction on, and may lower it no further than to the agent's. The other way, a score of -999
//! for the agent, would hand that bound to every program: each could make itself unkillable.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// How much higher than the agent's score that of programs is, up to the kernel's maximum.
const ABOVE_THE_AGENT: i32 = 500;
const SCORE_MAX: i32 = 1000;

struct Score {
    file: File,
    own: String,
    programs: String,
    /// How many births need the score of programs at the moment.
    births: Mutex<usize>,
}

impl Score {
    fn births(&self) -> MutexGuard<'_, usize> {
        self.births.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, score: &str) {
        self.file.write_at(score.as_bytes(), 0).ok();
    }
}

static SCORE: OnceLock<Score> = OnceLock::new();

/// Opens this process's score while it may still write its files in `/proc`.
pub fn open() -> io::Result<()> {
    let mut file = File::options().read(true).write(true).open("/proc/self/oom_score_adj")?;
    let mut own = String::new();
    file.read_to_string(&mut own)?;
    let programs = above(own.trim_end()).map_err(io::Error::other)?;
    SCORE.set(Score { file, own, programs, births: Mutex::new(0) }).ok();
    Ok(())
}

/// The score of programs whose agent has this one. A container may have been given a high one.
fn above(own: &str) -> Result<String, std::num::ParseIntError> {
    Ok((own.parse::<i32>()? + ABOVE_THE_AGENT).min(SCORE_MAX).to_string())
}

/// While this lives, children are born with the score of programs.
pub struct Exposed(Option<&'static Score>);

pub fn expose() -> Exposed {
    let score = SCORE.get();
    if let Some(score) = score {
        let mut births = score.births();
        *births += 1;
        if *births == 1 {
            score.write(&score.programs);
        }
    }
    Exposed(score)
}

impl Drop for Exposed {
    fn drop(&mut self) {
        if let Some(score) = self.0 {
            let mut births = score.births();
            *births -= 1;
            if *births == 0 {
                score.write(score.own.trim_end());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_above_their_agent_whatever_its_score_is() {
        let scores = ["0", "-999", "400", "900", "1000"].map(|own| above(own).unwrap());
        assert_eq!(scores, ["500", "-499", "900", "1000", "1000"]);
    }
}
