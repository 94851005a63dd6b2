//! Packs the language drivers: without comments and meaningless indentation, and compressed if the
//! interpreter can unpack them.

use std::path::{Path, PathBuf};
use std::{env, fs};

use zopfli::{Format, Options};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names it"));
    // A shell has nothing to unpack with.
    for (name, comment, indent, target, is_packed) in [
        ("python.py", "#", " ", "python.z", true),
        ("node.js", "//", "", "node.z", true),
        ("bash.sh", "#", "", "bash.sh", false),
    ] {
        let path = Path::new("src/repl").join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        let source = fs::read_to_string(&path).expect("a driver");
        let mut packed = bare(&source, comment, indent).into_bytes();
        if is_packed {
            packed = compressed(&packed);
        }
        fs::write(out.join(target), packed).expect("the output directory is ours");
    }
    println!("cargo::rerun-if-changed=build.rs");
}

/// As small as possible; it takes a second, once.
fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    zopfli::compress(Options::default(), Format::Zlib, bytes, &mut packed).expect("memory");
    packed
}

/// The width of an indentation level in the sources.
const LEVEL_SPACES: usize = 4;

/// Without blank lines and comment lines, and with `indent` for each level. No string in a driver
/// spans several lines.
fn bare(source: &str, comment: &str, indent: &str) -> String {
    let mut bare = String::new();
    for line in source.lines() {
        let code = line.trim_start();
        if !code.is_empty() && !code.starts_with(comment) {
            bare.push_str(&indent.repeat((line.len() - code.len()) / LEVEL_SPACES));
            bare.push_str(code);
            bare.push('\n');
        }
    }
    bare
}
