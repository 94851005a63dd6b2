//! Packs the language drivers: without comments, and compressed where the interpreter can unpack.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// As small as it gets; it is done once.
const LEVEL: u8 = 10;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names it"));
    // A shell has nothing to unpack with.
    for (name, comment, target, is_packed) in [
        ("python.py", "#", "python.z", true),
        ("node.js", "//", "node.z", true),
        ("bash.sh", "#", "bash.sh", false),
    ] {
        let path = Path::new("src/repl").join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        let source = fs::read_to_string(&path).expect("a driver");
        let mut packed = bare(&source, comment).into_bytes();
        if is_packed {
            packed = miniz_oxide::deflate::compress_to_vec_zlib(&packed, LEVEL);
        }
        fs::write(out.join(target), packed).expect("the output directory is ours");
    }
    println!("cargo::rerun-if-changed=build.rs");
}

/// Without blank lines and lines that are a comment. Drivers have neither within a string.
fn bare(source: &str, comment: &str) -> String {
    let is_code = |line: &&str| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with(comment)
    };
    source.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect()
}
