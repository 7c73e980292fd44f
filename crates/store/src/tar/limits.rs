//! [`Limits`]: how much a layer may hold. The configuration sets them; the reader and the unpacker enforce them with
//! an error that names the limit and the value that was seen.

/// Limits of one layer. A bomb ends in an error instead of a full disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the uncompressed tar stream.
    pub layer_bytes: u64,
    /// Entries, meta headers not counted.
    pub entries: u64,
    /// Bytes of the compressed layer that [`Self::entries`] follows from, where it does: its error says so.
    pub compressed: Option<u64>,
    /// Directories, implicit ones included: each costs some 200 bytes of memory while the layer is unpacked.
    pub directories: u64,
    /// Components of a path.
    pub path_depth: usize,
    /// Bytes of a path.
    pub path_bytes: usize,
    /// Bytes of one component of a path.
    pub name_bytes: usize,
    /// Bytes of a symbolic link's target.
    pub link_bytes: usize,
    /// Bytes of a GNU long name or long link record.
    pub long_name_bytes: usize,
    /// Bytes of one PAX record.
    pub pax_record_bytes: usize,
    /// Bytes of one PAX header, all records together.
    pub pax_header_bytes: usize,
    /// Extended attributes of one entry.
    pub xattrs: usize,
    /// Pieces of a sparse file.
    pub sparse_pieces: usize,
    /// Bytes of default access control lists of directories, which are held in memory until the end, all together.
    pub default_acl_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            layer_bytes: 64 << 30,
            entries: 2_500_000,
            compressed: None,
            directories: 1_000_000,
            path_depth: 256,
            path_bytes: 4096,
            name_bytes: 255,
            link_bytes: 4095,
            long_name_bytes: 64 << 10,
            pax_record_bytes: 1 << 20,
            pax_header_bytes: 4 << 20,
            xattrs: 256,
            sparse_pieces: 65_536,
            default_acl_bytes: 16 << 20,
        }
    }
}
