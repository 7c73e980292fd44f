//! The checksum of the superblock: CRC-32C (Castagnoli), as it stands in the register, without the last inversion.
//! Computed once for each EROFS file, over three kilobytes: a table of 256 entries is fast enough.

const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

/// Goes on with `register` (all ones in the beginning) over the bytes.
pub(crate) fn update(register: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(register, |value, byte| (value >> 8) ^ TABLE[usize::from(value.to_le_bytes()[0] ^ byte)])
}
