//! System calls by number, as x86-64 has them: where their descriptors and paths stand, and what they can fail with.

/// The system calls that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Calls that may take space on the disk.
    Space = 1,
    /// Calls that change something on the disk, or sync it.
    Change = 2,
    /// All calls to the disk.
    Any = 3,
    /// Calls that give a new descriptor.
    Descriptor = 4,
    /// Calls that start a thread or a process.
    Thread = 5,
    /// Calls that sync.
    Sync = 6,
    /// Calls that make or use a connection over IP.
    Network = 7,
    /// Calls that mount or unmount, and those on loop devices.
    Mount = 8,
}

/// All of them.
const CLASSES: [Class; 8] = [
    Class::Space,
    Class::Change,
    Class::Any,
    Class::Descriptor,
    Class::Thread,
    Class::Sync,
    Class::Network,
    Class::Mount,
];

impl Class {
    pub(crate) fn of(number: u64) -> Option<Self> {
        CLASSES.into_iter().find(|class| *class as u64 == number)
    }
}

/// The argument that names the object of a call.
#[derive(Clone, Copy)]
pub(crate) enum PathArgument {
    /// A descriptor.
    Fd(usize),
    /// A path.
    Path(usize),
    /// A path below a descriptor.
    At(usize, usize),
}

use PathArgument::{At, Fd, Path};

/// The effect of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    Read,
    Change,
    Take,
    /// Depends on its flags.
    Open,
    /// Gives descriptors that have nothing to do with files.
    Pipe,
    Start,
    /// Has to do with a connection.
    Talk,
    Mount,
}

pub(crate) struct Call {
    pub(crate) number: u64,
    pub(crate) name: &'static str,
    pub(crate) does: Does,
    pub(crate) places: &'static [PathArgument],
}

const fn call(number: u64, name: &'static str, does: Does, places: &'static [PathArgument]) -> Call {
    Call { number, name, does, places }
}

pub(crate) const OPENAT: u64 = 257;
pub(crate) const OPENAT2: u64 = 437;
pub(crate) const LSEEK: u64 = 8;
/// `fsync`, `fdatasync`, `syncfs`.
pub(crate) const SYNCS: [u64; 3] = [74, 75, 306];
pub(crate) const CLOSE: u64 = 3;
pub(crate) const SOCKET: u64 = 41;
pub(crate) const CONNECT: u64 = 42;

/// Those that the programs under test make.
pub(crate) const CALLS: &[Call] = &[
    call(0, "read", Does::Read, &[Fd(0)]),
    call(1, "write", Does::Take, &[Fd(0)]),
    call(2, "open", Does::Read, &[Path(0)]),
    call(5, "fstat", Does::Read, &[Fd(0)]),
    call(16, "ioctl", Does::Take, &[Fd(0)]),
    call(17, "pread64", Does::Read, &[Fd(0)]),
    call(18, "pwrite64", Does::Take, &[Fd(0)]),
    call(19, "readv", Does::Read, &[Fd(0)]),
    call(20, "writev", Does::Take, &[Fd(0)]),
    call(22, "pipe", Does::Pipe, &[]),
    call(32, "dup", Does::Pipe, &[]),
    call(SOCKET, "socket", Does::Pipe, &[]),
    call(CONNECT, "connect", Does::Talk, &[Fd(0)]),
    call(44, "sendto", Does::Talk, &[Fd(0)]),
    call(45, "recvfrom", Does::Talk, &[Fd(0)]),
    call(46, "sendmsg", Does::Talk, &[Fd(0)]),
    call(47, "recvmsg", Does::Talk, &[Fd(0)]),
    call(54, "setsockopt", Does::Talk, &[Fd(0)]),
    call(55, "getsockopt", Does::Talk, &[Fd(0)]),
    call(56, "clone", Does::Start, &[]),
    call(73, "flock", Does::Read, &[Fd(0)]),
    call(74, "fsync", Does::Take, &[Fd(0)]),
    call(75, "fdatasync", Does::Take, &[Fd(0)]),
    call(77, "ftruncate", Does::Take, &[Fd(0)]),
    call(82, "rename", Does::Take, &[Path(0), Path(1)]),
    call(83, "mkdir", Does::Take, &[Path(0)]),
    call(84, "rmdir", Does::Change, &[Path(0)]),
    call(87, "unlink", Does::Change, &[Path(0)]),
    call(89, "readlink", Does::Read, &[Path(0)]),
    call(90, "chmod", Does::Change, &[Path(0)]),
    call(91, "fchmod", Does::Change, &[Fd(0)]),
    call(93, "fchown", Does::Change, &[Fd(0)]),
    call(137, "statfs", Does::Read, &[Path(0)]),
    call(138, "fstatfs", Does::Read, &[Fd(0)]),
    call(165, "mount", Does::Mount, &[Path(1)]),
    call(166, "umount2", Does::Mount, &[Path(0)]),
    call(188, "setxattr", Does::Take, &[Path(0)]),
    call(189, "lsetxattr", Does::Take, &[Path(0)]),
    call(190, "fsetxattr", Does::Take, &[Fd(0)]),
    call(191, "getxattr", Does::Read, &[Path(0)]),
    call(192, "lgetxattr", Does::Read, &[Path(0)]),
    call(193, "fgetxattr", Does::Read, &[Fd(0)]),
    call(194, "listxattr", Does::Read, &[Path(0)]),
    call(195, "llistxattr", Does::Read, &[Path(0)]),
    call(196, "flistxattr", Does::Read, &[Fd(0)]),
    call(217, "getdents64", Does::Read, &[Fd(0)]),
    call(OPENAT, "openat", Does::Open, &[At(0, 1)]),
    call(258, "mkdirat", Does::Take, &[At(0, 1)]),
    call(259, "mknodat", Does::Take, &[At(0, 1)]),
    call(260, "fchownat", Does::Change, &[At(0, 1)]),
    call(262, "newfstatat", Does::Read, &[At(0, 1)]),
    call(263, "unlinkat", Does::Change, &[At(0, 1)]),
    call(264, "renameat", Does::Take, &[At(0, 1), At(2, 3)]),
    call(265, "linkat", Does::Take, &[At(0, 1), At(2, 3)]),
    call(266, "symlinkat", Does::Take, &[At(1, 2)]),
    call(267, "readlinkat", Does::Read, &[At(0, 1)]),
    call(268, "fchmodat", Does::Change, &[At(0, 1)]),
    call(269, "faccessat", Does::Read, &[At(0, 1)]),
    call(277, "sync_file_range", Does::Take, &[Fd(0)]),
    call(280, "utimensat", Does::Change, &[At(0, 1)]),
    call(285, "fallocate", Does::Take, &[Fd(0)]),
    call(293, "pipe2", Does::Pipe, &[]),
    call(306, "syncfs", Does::Take, &[Fd(0)]),
    call(316, "renameat2", Does::Take, &[At(0, 1), At(2, 3)]),
    call(326, "copy_file_range", Does::Take, &[Fd(0), Fd(2)]),
    call(332, "statx", Does::Read, &[At(0, 1)]),
    call(428, "open_tree", Does::Mount, &[At(0, 1)]),
    call(429, "move_mount", Does::Mount, &[At(0, 1), At(2, 3)]),
    call(430, "fsopen", Does::Mount, &[Path(0)]),
    call(431, "fsconfig", Does::Mount, &[Fd(0), Path(2)]),
    call(432, "fsmount", Does::Mount, &[Fd(0)]),
    call(435, "clone3", Does::Start, &[]),
    call(OPENAT2, "openat2", Does::Open, &[At(0, 1)]),
    call(442, "mount_setattr", Does::Mount, &[At(0, 1)]),
    call(452, "fchmodat2", Does::Change, &[At(0, 1)]),
];

/// The effect of an open with these flags.
pub(crate) fn open_does(flags: u64) -> Does {
    const ACCESS: u64 = 3;
    const CREATE: u64 = 0o100;
    const TMPFILE: u64 = 0o20_000_000;
    match flags {
        flags if flags & (CREATE | TMPFILE) != 0 => Does::Take,
        flags if flags & ACCESS != 0 => Does::Change,
        _ => Does::Read,
    }
}
