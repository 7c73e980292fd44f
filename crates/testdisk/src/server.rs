//! The process that serves a disk's file over FUSE: the file itself, and a second one that takes commands. Requests are handled
//! one after the other, so that the record has them in their order. The process ends when the file system is no longer in use.

use base::lock::Mutex;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, SessionACL, WriteFlags,
};

use crate::fault::{Fault, Op};
use crate::image::open_shared;
use crate::record::Recorder;

/// Name of the test that [`crate::serve`] makes, by which a test binary becomes a server.
pub const SERVER_TEST: &str = "testdisk_server";
/// Variable that names the files of content and record for the server.
pub(crate) const ASKED: &str = "IMAGELET_TESTDISK";

pub(crate) const DISK: &str = "disk";
pub(crate) const CONTROL: &str = "control";
const DISK_INODE: INodeNo = INodeNo(2);
const CONTROL_INODE: INodeNo = INodeNo(3);
/// Nothing changes but by us.
const FOR_EVER: Duration = Duration::from_secs(1 << 20);

/// Serves the disk that the environment asks for until it is no longer in use; `/dev/fuse` is the standard input.
///
/// # Panics
/// No disk is asked for, or it cannot be served.
pub fn serve_as_asked() {
    #[expect(clippy::disallowed_methods, reason = "a test that asks for a disk tells its server by the environment")]
    let asked = std::env::var(ASKED).expect("started by a disk");
    serve(&asked).expect("the disk is served");
}

fn serve(asked: &str) -> io::Result<()> {
    let (content, record) = asked.split_once(' ').ok_or(io::ErrorKind::InvalidInput)?;
    let content = open_shared(content)?;
    let size = content.metadata()?.len();
    let record = Recorder::new(open_shared(record)?);
    let state = State { record, recording: false, faults: Vec::new(), counts: [0; 4] };
    let server = Server { content, size, state: Mutex::new(state) };
    let device = std::io::stdin().as_fd().try_clone_to_owned()?;
    Session::from_fd(server, device, SessionACL::All, Config::default())?.run()
}

struct Server {
    content: File,
    size: u64,
    /// Guards nothing: requests arrive one after the other.
    state: Mutex<State>,
}

struct State {
    record: Recorder,
    recording: bool,
    faults: Vec<Fault>,
    /// Reads, writes, flushes, and those that failed.
    counts: [u64; 4],
}

impl State {
    /// Counts an operation, and fails if a fault is due.
    fn judge(&mut self, op: Op, offset: u64, length: u64) -> Result<(), Errno> {
        self.counts[op as usize] += 1;
        let bytes = offset..offset.saturating_add(length);
        match self.faults.iter_mut().find_map(|fault| fault.judge(op, &bytes)) {
            Some(errno) => {
                self.counts[3] += 1;
                Err(Errno::from_i32(errno))
            }
            None => Ok(()),
        }
    }

    fn command(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "note" if self.recording => self.record.note(rest).ok()?,
            "note" => {}
            "record" => {
                self.record.clear();
                self.recording = true;
            }
            "fail" => self.faults.push(Fault::of_line(rest)?),
            "heal" => self.faults.clear(),
            _ => return None,
        }
        Some(())
    }

    fn report(&self) -> String {
        let [reads, writes, flushes, failed] = self.counts;
        format!("{reads} {writes} {flushes} {failed} {}", self.record.length())
    }
}

impl Server {
    fn state(&self) -> base::lock::MutexGuard<'_, State> {
        self.state.lock()
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_root = inode == INodeNo::ROOT;
        FileAttr {
            ino: inode,
            size: if inode == DISK_INODE { self.size } else { 0 },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: if is_root { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn read_disk(&self, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        self.state().judge(Op::Read, offset, u64::from(size))?;
        let wanted = u64::from(size).min(self.size.saturating_sub(offset));
        let mut data = vec![0; usize::try_from(wanted).map_err(|_| Errno::EINVAL)?];
        self.content.read_exact_at(&mut data, offset).map_err(|_| Errno::EIO)?;
        Ok(data)
    }

    fn write_disk(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let mut state = self.state();
        state.judge(Op::Write, offset, data.len() as u64)?;
        if offset.saturating_add(data.len() as u64) > self.size {
            return Err(Errno::ENOSPC);
        }
        if state.recording {
            state.record.write(offset, data).map_err(|_| Errno::EIO)?;
        }
        self.content.write_all_at(data, offset).map_err(|_| Errno::EIO)
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let inode = match name.to_str() {
            Some(DISK) if parent == INodeNo::ROOT => DISK_INODE,
            Some(CONTROL) if parent == INodeNo::ROOT => CONTROL_INODE,
            _ => return reply.error(Errno::ENOENT),
        };
        reply.entry(&FOR_EVER, &self.attributes(inode), Generation(0));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if inode == CONTROL_INODE {
            let report = self.state().report();
            return reply.data(if offset == 0 { report.as_bytes() } else { &[] });
        }
        match self.read_disk(offset, size) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let done = if inode == CONTROL_INODE {
            std::str::from_utf8(data).ok().and_then(|line| self.state().command(line)).ok_or(Errno::EINVAL)
        } else {
            self.write_disk(offset, data)
        };
        match (done, u32::try_from(data.len())) {
            (Ok(()), Ok(written)) => reply.written(written),
            (Ok(()), Err(_)) => reply.error(Errno::EINVAL),
            (Err(error), _) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // A close, which makes sure of nothing.
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut state = self.state();
        let done = state
            .judge(Op::Flush, 0, 0)
            .and_then(|()| if state.recording { state.record.flush().map_err(|_| Errno::EIO) } else { Ok(()) });
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}
