//! Loop devices over an open file, which clear themselves when nobody has them open any more. Called by [`crate::mounted`] and
//! [`crate::disk`]. The only module of the crate with unsafe code: these requests have no safe wrapper.
#![expect(unsafe_code, reason = "two ioctl requests that rustix knows only as numbers, each of which is argued for")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};

/// Others take devices too: how often another free one is asked for.
const ATTEMPTS: usize = 256;
/// `LOOP_CTL_GET_FREE` (linux/loop.h).
const GET_FREE: Opcode = 0x4C82;
/// `LOOP_CONFIGURE`, from Linux 5.8 on.
const CONFIGURE: Opcode = 0x4C0A;
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

/// A device that shows a file.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    pub(crate) path: PathBuf,
    /// What keeps it, beside a mount.
    _open: OwnedFd,
}

impl LoopDevice {
    /// A new device over this file. `direct`: what is written goes to the file at once, past the page cache.
    pub(crate) fn new(file: &File, direct: bool) -> io::Result<Self> {
        let open = |path: &str| {
            rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|error| {
                io::Error::new(io::Error::from(error).kind(), format!("{path}: {error}; this needs root"))
            })
        };
        let control = open("/dev/loop-control")?;
        for _ in 0..ATTEMPTS {
            // SAFETY: `GET_FREE` is what this driver calls a request without argument, and `GetFree` treats it as one.
            let path = format!("/dev/loop{}", unsafe { ioctl(&control, GetFree) }?);
            let device = open(&path)?;
            let flags = if direct { AUTOCLEAR | DIRECT_IO } else { AUTOCLEAR };
            match configure(&device, file, flags) {
                Ok(()) => return Ok(Self { path: path.into(), _open: device }),
                // Somebody else took it meanwhile.
                Err(Errno::BUSY) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::BUSY.into())
    }
}

fn configure(device: &OwnedFd, file: &File, flags: u32) -> rustix::io::Result<()> {
    let fd = u32::try_from(file.as_raw_fd()).map_err(|_| Errno::BADF)?;
    let config =
        Config { fd, block_size: 512, before_flags: [0; 13], flags, names_and_keys: [0; 44], reserved: [0; 8] };
    // SAFETY: `CONFIGURE` reads one `struct loop_config`, which `Config` is, without padding.
    let setter = unsafe { Setter::<CONFIGURE, Config>::new(config) };
    // SAFETY: the device is a loop device, whose driver reads that and writes no memory of ours.
    unsafe { ioctl(device, setter) }
}
