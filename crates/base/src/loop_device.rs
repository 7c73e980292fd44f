//! [`LoopDevice`]: a block device that shows an open file, and clears itself when nobody has it open any more: neither a
//! failure, nor a crash, nor an unmount leaves one behind. The only module of the crate with unsafe code: these requests
//! have no safe wrapper.
#![expect(unsafe_code, reason = "two ioctl requests that rustix knows only as numbers, each of which is argued for")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};

const CONTROL: &str = "/dev/loop-control";
/// Others take devices too: how many free ones are tried.
const ATTEMPTS: usize = 256;
/// `LOOP_CTL_GET_FREE` (linux/loop.h).
const GET_FREE: Opcode = 0x4C82;
/// `LOOP_CONFIGURE`, from Linux 5.8 on.
const CONFIGURE: Opcode = 0x4C0A;
const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;

/// `struct loop_config`, with the fields of `struct loop_info64` that are zero here taken together.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    before_flags: [u32; 13],
    flags: u32,
    names_and_keys: [u32; 44],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Config>() == 304, "as the kernel has it, without padding");

/// Asks for the number of a free device, which is the request's result.
struct GetFree;

// SAFETY: the request takes no argument and writes no memory; what it answers is its return value.
unsafe impl Ioctl for GetFree {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        u32::try_from(output).map_err(|_| Errno::INVAL)
    }
}

/// How a loop device shows its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopFlags {
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Makes the device refuse writes.
    pub read_only: bool,
    /// Sends writes to the file at once, past the page cache.
    pub direct: bool,
}

/// A device that shows a file. It is cleared when this is dropped, unless something has mounted it.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    /// Keeps the device until it is mounted.
    _open: OwnedFd,
}

impl LoopDevice {
    /// A new device that shows this file. Needs root, and Linux 5.8.
    ///
    /// # Errors
    /// The kernel's, with the path of the device.
    pub fn new(file: &File, flags: LoopFlags) -> io::Result<Self> {
        let control = open(CONTROL, OFlags::RDWR)?;
        for _ in 0..ATTEMPTS {
            // SAFETY: `GET_FREE` is what this driver calls a request without argument, and `GetFree` treats it as one.
            let number = unsafe { ioctl(&control, GetFree) }.map_err(|error| named(error, CONTROL))?;
            let path = format!("/dev/loop{number}");
            let device = open(&path, if flags.read_only { OFlags::RDONLY } else { OFlags::RDWR })?;
            match configure(&device, file, flags) {
                Ok(()) => return Ok(Self { path: path.into(), _open: device }),
                // Somebody else took it meanwhile.
                Err(Errno::BUSY) => {}
                Err(error) => return Err(named(error, &path)),
            }
        }
        Err(named(Errno::BUSY, "no loop device stayed free"))
    }

    /// Path of the device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn named(error: Errno, name: &str) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

fn open(path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(|error| named(error, path))
}

fn configure(device: &OwnedFd, file: &File, flags: LoopFlags) -> rustix::io::Result<()> {
    let fd = u32::try_from(file.as_raw_fd()).map_err(|_| Errno::BADF)?;
    let bit = |set, bit| if set { bit } else { 0 };
    let config = Config {
        fd,
        block_size: flags.block_bytes,
        before_flags: [0; 13],
        flags: AUTOCLEAR | bit(flags.read_only, READ_ONLY) | bit(flags.direct, DIRECT_IO),
        names_and_keys: [0; 44],
        reserved: [0; 8],
    };
    // SAFETY: `CONFIGURE` reads one `struct loop_config`, which `Config` is, without padding.
    let setter = unsafe { Setter::<CONFIGURE, Config>::new(config) };
    // SAFETY: the device is a loop device, whose driver reads that and writes no memory of ours.
    unsafe { ioctl(device, setter) }
}
