//! Permissions of a file, which an object keeps in its metadata. Pure.

/// The field of an object's head.
pub const HEADER: &str = "x-amz-meta-mode";
/// The mode of an object that has none.
pub const USUAL: u32 = 0o644;
const KEPT: u32 = 0o777;
const READABLE: u32 = 0o400;
const KIND: u32 = 0o170_000;
const FILE: u32 = 0o100_000;

pub fn write(mode: u32) -> String {
    format!("{:04o}", mode & KEPT)
}

/// Our own format, and those of other programs: octal or decimal, with the file type in front.
pub fn read(text: &str) -> u32 {
    let text = text.trim();
    let octal = u32::from_str_radix(text, 8).ok();
    let is_mode = |mode: &u32| matches!(mode & KIND, 0 | FILE) && *mode <= FILE | 0o7777;
    let is_whole = |mode: &u32| mode & KIND == FILE && *mode <= FILE | 0o7777;
    let mode = octal.filter(is_mode).or_else(|| text.parse().ok().filter(is_whole));
    // A file that its owner cannot read is useless here.
    mode.map_or(USUAL, |mode| mode & KEPT | READABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_however_they_are_written() {
        for (text, mode) in [
            ("0755", 0o755),
            ("100755", 0o755),
            ("33261", 0o755),
            ("33188", 0o644),
            ("4755", 0o755),
            ("", USUAL),
            ("rwx", USUAL),
            ("99999999999", USUAL),
            ("16877", USUAL),
            ("0", 0o400),
        ] {
            assert_eq!(read(text), mode, "{text}");
        }
        assert_eq!(read(&write(0o4751)), 0o751);
    }
}
