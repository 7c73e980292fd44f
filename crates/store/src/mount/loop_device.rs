//! Loop devices, for kernels that mount EROFS from a block device only. A device is read-only and goes by itself when nothing
//! has it open any more: neither a failure, nor a crash, nor an unmount leaves one behind. Called by
//! [`super::erofs_file`] alone. With unsafe code, since these requests have no safe wrapper.
#![expect(unsafe_code, reason = "two ioctl requests that rustix knows only as numbers, each of which is argued for")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};

const CONTROL: &str = "/dev/loop-control";
/// Others take devices too: how often another free one is asked for.
const ATTEMPTS: usize = 64;
/// Bytes of an EROFS block.
const BLOCK_BYTES: u32 = 4096;

/// `LOOP_CTL_GET_FREE` (linux/loop.h).
const GET_FREE: Opcode = 0x4C82;
/// `LOOP_CONFIGURE`, from Linux 5.8 on.
const CONFIGURE: Opcode = 0x4C0A;
const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;

/// `struct loop_info64`.
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
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

/// A device that shows a file. It goes when this is dropped, unless something has mounted it.
#[derive(Debug)]
pub(super) struct LoopDevice {
    /// Where it is.
    pub(super) path: PathBuf,
    /// The descriptor that keeps it.
    _open: OwnedFd,
}

impl LoopDevice {
    /// A new device that shows this file.
    pub(super) fn new(file: &File) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let named = |error: Errno, name: &str| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{name}: {error}"))
        };
        let control = rustix::fs::open(CONTROL, flags, Mode::empty()).map_err(|error| named(error, CONTROL))?;
        let mut last = Errno::BUSY;
        for _ in 0..ATTEMPTS {
            // SAFETY: `GET_FREE` is what this driver calls a request without argument, and `GetFree` treats it as one.
            let number = unsafe { ioctl(&control, GetFree) }.map_err(|error| named(error, CONTROL))?;
            let name = format!("/dev/loop{number}");
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let device = rustix::fs::open(&name, flags, Mode::empty()).map_err(|error| named(error, &name))?;
            match configure(&device, file) {
                Ok(()) => return Ok(Self { path: name.into(), _open: device }),
                // Somebody else took it meanwhile.
                Err(Errno::BUSY) => last = Errno::BUSY,
                Err(error) => return Err(named(error, &name)),
            }
        }
        Err(named(last, "no loop device stayed free"))
    }
}

fn configure(device: &OwnedFd, file: &File) -> rustix::io::Result<()> {
    let info = Info {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: READ_ONLY | AUTOCLEAR,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    let fd = u32::try_from(file.as_raw_fd()).map_err(|_| Errno::BADF)?;
    let config = Config { fd, block_size: BLOCK_BYTES, info, reserved: [0; 8] };
    // SAFETY: `CONFIGURE` reads one `struct loop_config`, which `Config` is, field by field and without padding.
    let setter = unsafe { Setter::<CONFIGURE, Config>::new(config) };
    // SAFETY: the device is a loop device, whose driver reads that and writes no memory of ours.
    unsafe { ioctl(device, setter) }
}
