//! `InRelease`: an archive's signed file, with the digests of its indexes.

use crate::digest::Sha256;

/// The fields of a release that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// When it was made, in seconds since 1970.
    pub date_s: u64,
    /// Its expiry, if it has one.
    valid_until_s: Option<u64>,
    /// Its own name: `bookworm-updates`, `oldstable-updates`.
    names: Vec<String>,
    files: Vec<(String, u64, Sha256)>,
}

/// Why a release cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    #[error("the release has no valid date")]
    Date,
    #[error("the release has no SHA-256 for {0}")]
    NoDigest(String),
    #[error("the release is for {found}, not for {wanted}")]
    Other { wanted: String, found: String },
    #[error("the release was valid until {until_s} seconds after 1970, and it is {now_s}")]
    Expired { until_s: u64, now_s: u64 },
}

impl Release {
    /// Reads the text, whose signature is not judged here.
    pub fn parse(text: &str) -> Result<Self, ReleaseError> {
        let field = |name| text.lines().find_map(|line: &str| line.strip_prefix(name));
        let date = |text| parse_date(text).ok_or(ReleaseError::Date);
        let date_s = field("Date:").ok_or(ReleaseError::Date).and_then(date)?;
        let valid_until_s = field("Valid-Until:").map(date).transpose()?;
        let names = [field("Codename:"), field("Suite:")];
        let names = names.into_iter().flatten().map(|name| name.trim().to_owned()).collect();
        let files = text
            .lines()
            .skip_while(|line| *line != "SHA256:")
            .skip(1)
            .take_while(|line| line.starts_with(' '))
            .filter_map(|line| {
                let mut columns = line.split_whitespace();
                let digest = columns.next()?.parse().ok()?;
                let bytes = columns.next()?.parse().ok()?;
                Some((columns.next()?.to_owned(), bytes, digest))
            })
            .collect();
        Ok(Self { date_s, valid_until_s, names, files })
    }

    /// Whether it is the requested one and still valid: with an old or another signed release, an attacker
    /// could keep known vulnerabilities in a new lock.
    pub fn check(&self, wanted: &str, now_s: u64) -> Result<(), ReleaseError> {
        if !self.names.iter().any(|name| name == wanted) {
            let found = self.names.join(", ");
            return Err(ReleaseError::Other { wanted: wanted.to_owned(), found });
        }
        match self.valid_until_s {
            Some(until_s) if now_s > until_s => Err(ReleaseError::Expired { until_s, now_s }),
            _ => Ok(()),
        }
    }

    /// The expected digest and size of a file below the release.
    pub fn file(&self, path: &str) -> Result<(u64, Sha256), ReleaseError> {
        let found = self.files.iter().find(|(name, ..)| name == path);
        let (_, bytes, sha256) = found.ok_or_else(|| ReleaseError::NoDigest(path.to_owned()))?;
        Ok((*bytes, *sha256))
    }
}

/// `Sat, 11 Jul 2026 10:16:37 UTC` in seconds since 1970.
fn parse_date(text: &str) -> Option<u64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let (_, text) = text.split_once(", ")?;
    let mut parts = text.split_whitespace();
    let day: u64 = parts.next()?.parse().ok()?;
    let month = MONTHS.find(parts.next()?)? as u64 / 3;
    let year: u64 = parts.next()?.parse().ok()?;
    let clock: Vec<u64> = parts.next()?.split(':').filter_map(|part| part.parse().ok()).collect();
    let [hours, minutes, seconds] = clock[..] else { return None };
    // Days before a year that begins in March, so that a leap day is its last.
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_of_another_name_or_past_its_time_is_refused() {
        let date = "Date: Thu, 01 Jan 1970 00:00:10 UTC\n";
        let text = format!(
            "Suite: stable-updates\nCodename: x-updates\n{date}\
             Valid-Until: Thu, 01 Jan 1970 00:00:20 UTC\n"
        );
        let release = Release::parse(&text).expect("a release");
        assert_eq!(release.check("x-updates", 20), Ok(()));
        assert_eq!(release.check("stable-updates", 20), Ok(()));
        let expired = ReleaseError::Expired { until_s: 20, now_s: 21 };
        assert_eq!(release.check("x-updates", 21), Err(expired));
        assert!(matches!(release.check("x", 20), Err(ReleaseError::Other { .. })));
        let text = format!("Codename: x\n{date}");
        assert_eq!(Release::parse(&text).expect("a release").check("x", u64::MAX), Ok(()));
        let text = format!("Codename: x\n{date}Valid-Until: for ever\n");
        assert_eq!(Release::parse(&text), Err(ReleaseError::Date));
    }

    #[test]
    fn dates_and_digests_are_read_out_of_a_release() {
        let digest = "ab".repeat(32);
        let text = format!(
            "Codename: x\nDate: Sat, 11 Jul 2026 10:16:37 UTC\nMD5Sum:\n 00 5 main/Packages\n\
             SHA256:\n {digest}  77 main/Packages\n"
        );
        let release = Release::parse(&text).expect("a release");
        assert_eq!(release.date_s, 1_783_764_997);
        assert_eq!(release.file("main/Packages").map(|(bytes, _)| bytes), Ok(77));
        assert!(matches!(release.file("main/Other"), Err(ReleaseError::NoDigest(_))));
        assert_eq!(Release::parse("Date: someday"), Err(ReleaseError::Date));
        assert_eq!(parse_date("Thu, 01 Jan 1970 00:00:01 UTC"), Some(1));
        assert_eq!(parse_date("Thu, 29 Feb 2024 00:00:00 UTC"), Some(1_709_164_800));
    }
}
