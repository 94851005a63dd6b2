//! Scientific Python as people get it: `--pip pandas,matplotlib` over the host's root, with the real packages, and
//! the kit's image `science`, which `just science` builds and CI does not. Both draw the same figure.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tests::libraries::wheels_of;
use tests::machines::{kit, machines_or_skip};
use tests::own_host::OwnHost;
use tests::{Burrow, kept_for_boxes, skip};

const FIGURE: &str = "\
import pandas, matplotlib.pyplot as pyplot
table = pandas.DataFrame({'month': [1, 2, 3], 'sold': [3, 5, 2]})
table.plot(x='month', y='sold')
pyplot.show()
print(int(table.sold.sum()))";
const PACKAGES: [&str; 2] = ["pandas", "matplotlib"];
/// What a PNG begins with.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Draws it in a new sandbox with these options.
fn draws_a_figure(burrow: &Burrow, cache: &Path, options: &[&str]) {
    let shown = TempDir::with_prefix_in("shown-", burrow.scratch()).expect("a directory");
    let save = shown.path().to_str().expect("text");
    let line = [&["repl"], options, &["--save-displays", save, "-c", FIGURE]].concat();
    let ran =
        burrow.command(&line).env("BURROW_CACHE_DIR", cache).output().expect("the bridge runs");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{options:?}: {stderr}");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("10\n"), "{options:?}: {stderr}");
    let files = fs::read_dir(save).expect("what was shown").flatten();
    let figures = files.filter(|file| fs::read(file.path()).is_ok_and(|it| it.starts_with(PNG)));
    assert_eq!(figures.count(), 1, "{options:?}: {stderr}");
}

#[test]
fn pip_brings_pandas_and_matplotlib_which_draw_a_figure() {
    let Some(wheels) = wheels_of("science-wheels", &PACKAGES) else { return };
    let Some(host) = OwnHost::or_skip() else { return };
    if !host.serve_wheels(&wheels) {
        return;
    }
    // A directory that sandboxes see, and that no other test has filled.
    let place = match kept_for_boxes("science-caches") {
        Ok(place) => place,
        Err(reason) => return skip(&reason),
    };
    fs::create_dir_all(&place).expect("target/");
    let cache = TempDir::with_prefix_in("cache-", place).expect("a directory");
    let burrow = Burrow::new();
    let packages = PACKAGES.join(",");
    draws_a_figure(&burrow, cache.path(), &["--pip", &packages]);
    let kept = fs::read_dir(cache.path().join("packages")).expect("it was made").flatten();
    let sets = kept.filter(|entry| entry.path().is_dir()).count();
    assert_eq!(sets, 1, "what was installed is kept, and nothing else is");
}

#[test]
fn the_science_image_has_pandas_and_draws_a_figure() {
    if !machines_or_skip() {
        return;
    }
    if !kit().join("science.erofs").exists() {
        return skip(&format!("{} has no science.erofs: `just science` makes it", kit().display()));
    }
    let burrow = Burrow::new();
    let cache = burrow.scratch().join("cache");
    let machine = ["--machine", "qemu", "--image", "science", "--memory", "1G"];
    draws_a_figure(&burrow, &cache, &machine);
}
