//! How glibc's allocator returns memory to the kernel: each block of 128 KiB or more when it is freed. Called by `main`.
#![expect(unsafe_code, reason = "one function of glibc that nothing wraps")]

/// Size of blocks from which glibc asks the kernel for each one, and returns each one: glibc's own initial value.
const LARGE: libc::c_int = 128 * 1024;

/// Fixes the size of large blocks. By itself glibc raises it to that of the largest block that was freed, up to 32 MiB. The buffers of
/// pulls then lie between small blocks in the heaps of many threads, and an agent keeps more memory with each pull (decision 107). Must be
/// called before any thread is started.
pub(crate) fn return_large_blocks() {
    // SAFETY: the function only writes a parameter of the allocator, and no other thread is running yet. If it fails, glibc's rule
    // stays in force.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
}
