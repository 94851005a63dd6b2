//! Limits of a layer. A layer is untrusted, so each number bounds the disk space or memory that it can use
//! on this host.

/// Layers of one image. Overlay-based builders stop at 127.
pub const LAYERS_MAX: usize = 128;
/// The total size of one layer's files: the largest frameworks for accelerators have nearly ten
/// GiB.
pub const LAYER_BYTES_MAX: u64 = 32 << 30;
/// The total size of the files in all layers of an image.
pub const IMAGE_BYTES_MAX: u64 = 64 << 30;
/// Entries of one layer: several full desktops.
pub const LAYER_ENTRIES_MAX: u64 = 2_000_000;
/// Entries of all layers of an image together.
pub const IMAGE_ENTRIES_MAX: u64 = 4_000_000;
/// An archive's overhead besides its files' contents: a header and its extensions for each entry,
/// and padding.
pub const LAYER_OVERHEAD_BYTES_MAX: u64 = 4 << 30;
/// The deepest path, in directories.
pub const DEPTH_MAX: usize = 128;
/// The largest name of one component, which is the kernel's own bound.
pub const NAME_BYTES_MAX: usize = 255;
/// The paths of one layer that are kept in memory while it is unpacked or composed: directories,
/// whiteouts and links. A full desktop has about fifty thousand of them.
pub const NOTED_BYTES_MAX: usize = 128 << 20;
/// The cost of one such path besides its own bytes: its entry, and its place in a tree.
pub const NOTE_BYTES: usize = 256;
/// How much larger than its compressed form a layer may become, once it is larger than
/// [`RATIO_FREE_BYTES`]. Source code reaches 10, and gzip's maximum is 1030.
pub const RATIO_MAX: u64 = 200;
/// Up to this size no ratio is too good: a layer of zeros is small and legitimate.
pub const RATIO_FREE_BYTES: u64 = 256 << 20;

/// How much is read, hashed and written at once.
pub const BUFFER_BYTES: usize = 128 * 1024;
const _: () = assert!(LAYER_BYTES_MAX <= IMAGE_BYTES_MAX, "an image is at least its layers");
/// The block that an archive begins with.
pub const HEADER_BYTES: u64 = 512;
