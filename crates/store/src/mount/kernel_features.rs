//! [`KernelFeatures`]: the ways of mounting that the mounter tries.

/// From so many layers on it pays to compose one EROFS file of them (docs/layers.md has the figures).
const MANY: usize = 60;
/// Layers that are smaller than this are mounted from the file where the kernel can: setting a loop device up takes longer than the rest of
/// a mount, and its own memory is about what sharing would save (docs/performance.md).
const SHARED_FROM: u64 = 256 << 10;

/// The features of the kernel that the mounter uses: all of them, but in tests of what other kernels lack.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelFeatures {
    /// From so many bytes on, a layer's mounts share a loop device.
    pub(super) shared_from: u64,
    /// EROFS from a file (Linux 6.12).
    pub(super) from_file: bool,
    /// Layers by descriptors of mounts that are nowhere (Linux 6.15).
    pub(super) unseen: bool,
    /// The new mount API for overlayfs (Linux 6.7).
    pub(super) new_overlay: bool,
    /// From so many layers on, which are all EROFS files, one EROFS file is composed of them.
    pub(super) many: usize,
}

impl Default for KernelFeatures {
    fn default() -> Self {
        Self { shared_from: SHARED_FROM, from_file: true, unseen: true, new_overlay: true, many: MANY }
    }
}
