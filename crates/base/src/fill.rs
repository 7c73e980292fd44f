//! [`fill`]: short reads repeated. Knows no files: the caller reads.

/// Calls `read_at` from `offset` on until the buffer is full or nothing is left. Returns how many bytes were read.
///
/// # Errors
/// The first error of `read_at`, interruptions included.
pub fn fill<E>(
    buffer: &mut [u8],
    offset: u64,
    read_at: impl Fn(&mut [u8], u64) -> Result<usize, E>,
) -> Result<usize, E> {
    let mut done = 0;
    while done < buffer.len() {
        match read_at(&mut buffer[done..], offset + done as u64)? {
            0 => break,
            length => done += length,
        }
    }
    Ok(done)
}
