//! Limits of a layer. A layer is untrusted, so each number bounds the disk space or memory that it can use
//! on this host.

/// Layers of one image. Overlay-based builders stop at 127.
pub const LAYERS_MAX: usize = 128;
/// What the files of one layer may hold together: the largest frameworks for accelerators are near
/// ten.
pub const LAYER_BYTES_MAX: u64 = 32 << 30;
/// What the files of all layers of an image may hold together.
pub const IMAGE_BYTES_MAX: u64 = 64 << 30;
/// Entries of one layer: several full desktops.
pub const LAYER_ENTRIES_MAX: u64 = 2_000_000;
/// Entries of all layers of an image together.
pub const IMAGE_ENTRIES_MAX: u64 = 4_000_000;
/// What the archive of a layer has besides the contents of files: a header and its extensions for
/// each entry, and padding.
pub const LAYER_OVERHEAD_BYTES_MAX: u64 = 4 << 30;
/// How many directories a path may lead through.
pub const DEPTH_MAX: usize = 128;
/// The largest name of one component, which is the kernel's own bound.
pub const NAME_BYTES_MAX: usize = 255;
/// What may be remembered of one layer while it is unpacked or composed: paths of directories,
/// whiteouts and links. A full desktop has some fifty thousand of such paths.
pub const NOTED_BYTES_MAX: usize = 128 << 20;
/// What one such path costs besides its own bytes: its entry, and its place in a tree.
pub const NOTE_BYTES: usize = 256;
/// How much larger than its compressed form a layer may become, once it is larger than
/// [`RATIO_FREE_BYTES`]. Source code comes to 10, and gzip cannot say more than 1030.
pub const RATIO_MAX: u64 = 200;
/// Up to this size no ratio is too good: a layer of zeros is small and legitimate.
pub const RATIO_FREE_BYTES: u64 = 256 << 20;

/// How much is read, hashed and written at once.
pub const BUFFER_BYTES: usize = 128 * 1024;
const _: () = assert!(LAYER_BYTES_MAX <= IMAGE_BYTES_MAX, "an image is at least its layers");
/// The block that an archive begins with.
pub const HEADER_BYTES: u64 = 512;
