//! [`LoopDevice`]: a block device that shows an open file, and clears itself when no process has it open any more: no failure,
//! crash or unmount leaves one behind. A device that already shows the same file, for whichever process, is found again
//! ([`LoopDevice::shared`]): file systems on one device are one, with one page cache. Has unsafe code, since these requests have
//! no safe wrapper.
#![expect(unsafe_code, reason = "three ioctl requests that rustix knows only as numbers, each of which is argued for")]

use std::ffi::{OsStr, OsString, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, Opcode, Setter, ioctl};

const CONTROL: &str = "/dev/loop-control";
/// Other processes take devices too: how many free ones are tried.
const ATTEMPTS: usize = 256;
/// `LOOP_CTL_GET_FREE` (linux/loop.h).
const GET_FREE: Opcode = 0x4C82;
/// `LOOP_CONFIGURE`, from Linux 5.8 on.
const CONFIGURE: Opcode = 0x4C0A;
/// `LOOP_GET_STATUS64`.
const GET_STATUS: Opcode = 0x4C05;
/// Where the kernel lists block devices, those of its loop driver with `loop/backing_file`.
const BLOCK_DEVICES: &str = "/sys/block";
/// The name that our devices have in addition to their file's, which distinguishes them from other devices.
const NAME: &[u8; 8] = b"imagelet";
const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;

/// `struct loop_info64`.
#[repr(C)]
struct LoopInfo {
    /// Number of the file system's device, and the file's inode there.
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    name: [u8; 64],
    crypt_name: [u8; 64],
    key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232, "as the kernel has it, without padding");
const _: () = assert!(size_of::<LoopConfig>() == 304, "as the kernel has it, without padding");

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
    /// Reads and writes the file past its page cache, where its file system can.
    pub direct: bool,
}

/// How the device of an EROFS layer shows its file: by blocks of EROFS.
pub const LAYER_DEVICE: LoopFlags = LoopFlags { block_bytes: 4096, read_only: true, direct: true };

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
                // Another process took it meanwhile.
                Err(Errno::BUSY) => {}
                Err(error) => return Err(named(error, &path)),
            }
        }
        Err(named(Errno::BUSY, "no loop device stayed free"))
    }

    /// A device of ours that shows this file already, or a new one. What is mounted from it is one file system, however many mount it.
    ///
    /// # Errors
    /// As of [`Self::new`].
    pub fn shared(file: &File, flags: LoopFlags) -> io::Result<Self> {
        LoopDevices::read().shared(file, flags)
    }

    /// Path of the device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The loop devices that show a file, as the kernel listed them. For callers that share devices of many files.
#[derive(Debug)]
pub struct LoopDevices(Vec<(OsString, PathBuf)>);

impl LoopDevices {
    /// Reads the kernel's table.
    #[must_use]
    pub fn read() -> Self {
        let devices = std::fs::read_dir(BLOCK_DEVICES).into_iter().flatten().filter_map(Result::ok);
        let shows = |device: std::fs::DirEntry| {
            let file = std::fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
            Some((device.file_name(), PathBuf::from(file.trim_end())))
        };
        Self(devices.filter_map(shows).collect())
    }

    /// A table without devices: every file gets a new one.
    #[must_use]
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// A device of ours that shows this file already, or a new one: see [`LoopDevice::shared`].
    ///
    /// # Errors
    /// As of [`LoopDevice::new`].
    pub fn shared(&self, file: &File, flags: LoopFlags) -> io::Result<LoopDevice> {
        match self.find(file, flags) {
            Some(found) => Ok(found),
            None => LoopDevice::new(file, flags),
        }
    }

    /// Returns a device that shows the file. The kernel's table of devices is only a hint: the open device itself identifies its
    /// file, and is not cleared as long as it is open.
    fn find(&self, file: &File, flags: LoopFlags) -> Option<LoopDevice> {
        let shown = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        let stat = rustix::fs::fstat(file).ok()?;
        self.0.iter().find_map(|(device, backing)| {
            if last_parts(backing) != last_parts(&shown) {
                return None;
            }
            let path = Path::new("/dev").join(device);
            let open = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
            let info = status(&open).ok()?;
            let mode = AUTOCLEAR | if flags.read_only { READ_ONLY } else { 0 };
            let is_whole = (info.offset, info.size_limit) == (0, 0) && info.flags & (AUTOCLEAR | READ_ONLY) == mode;
            let is_ours = info.name.starts_with(NAME) && (info.device, info.inode) == (stat.st_dev, stat.st_ino);
            (is_whole && is_ours).then_some(LoopDevice { path, _open: open })
        })
    }
}

/// Returns the file's name and its directory's, which are the same for a store whichever path leads to it.
fn last_parts(path: &Path) -> (Option<&OsStr>, Option<&OsStr>) {
    (path.file_name(), path.parent().and_then(Path::file_name))
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
    let mut name = [0; 64];
    name[..NAME.len()].copy_from_slice(NAME);
    let info = LoopInfo {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encryption: [0; 2],
        flags: AUTOCLEAR | bit(flags.read_only, READ_ONLY) | bit(flags.direct, DIRECT_IO),
        name,
        crypt_name: [0; 64],
        key: [0; 32],
        init: [0; 2],
    };
    let config = LoopConfig { fd, block_size: flags.block_bytes, info, reserved: [0; 8] };
    // SAFETY: `CONFIGURE` reads one `struct loop_config`, which `LoopConfig` is, without padding.
    let setter = unsafe { Setter::<CONFIGURE, LoopConfig>::new(config) };
    // SAFETY: the device is a loop device, whose driver reads that and writes no memory of ours.
    unsafe { ioctl(device, setter) }
}

/// The file of a device and how it is shown; `ENXIO` where it shows none.
fn status(device: &OwnedFd) -> rustix::io::Result<LoopInfo> {
    // SAFETY: `GET_STATUS` writes one `struct loop_info64`, which `LoopInfo` is, without padding, and of which every pattern of bits is a value.
    let getter = unsafe { Getter::<GET_STATUS, LoopInfo>::new() };
    // SAFETY: the device is a loop device, whose driver writes that and nothing else.
    unsafe { ioctl(device, getter) }
}
