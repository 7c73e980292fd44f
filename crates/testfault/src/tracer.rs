//! The parent's side: follows every thread of the child, and returns errors in the kernel's place where a fault is armed. While
//! nothing is armed the child runs as it would by itself.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::calls::{
    CALLS, CLOSE, CONNECT, Call, Class, Does, LSEEK, OPENAT, OPENAT2, PathArgument, SOCKET, SYNCS, open_does,
};
use crate::child::{DISARM, Fault, MAGIC, STEP};

/// The end of a traced child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// The child ended without an error.
    pub success: bool,
    /// The exit code, unless a signal ended the child.
    pub code: Option<i32>,
    /// How it ended.
    pub end: String,
    /// How many calls failed.
    pub failed: u64,
    /// How many there were of the class that was armed last.
    pub calls: u32,
    /// How many of each kind.
    pub by_call: BTreeMap<&'static str, u64>,
    /// The last ones, as people read them.
    pub last: Vec<String>,
    /// The syncs, in their order, if the child asked for one that is not done.
    pub syncs: Vec<Sync>,
}

/// A call that makes sure of what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    /// In which step of the child's work.
    pub step: u16,
    /// The call's name.
    pub call: &'static str,
    /// The path of the call, below the directory.
    pub path: String,
}

/// The fault to inject.
struct Armed {
    class: Class,
    at: u32,
    lasting: bool,
    errno: u16,
    calls: u32,
    failed: u32,
}

/// The state of a thread within a call.
#[derive(Clone, Copy)]
enum Within {
    Call,
    /// The call was not made; this is the answer.
    Answered(i64),
}

struct Tracer {
    process: Pid,
    root: PathBuf,
    armed: Option<Armed>,
    /// Armed as soon as the process becomes another program.
    at_exec: Option<Fault>,
    /// Descriptors of connections over IP.
    connections: HashSet<u64>,
    /// Every thread, and what it is in.
    threads: HashMap<Pid, Option<Within>>,
    step: u16,
    traced: Traced,
}

/// Traces a child to its end. It is to wait for a line on its standard input first, which must be a pipe; calls count that
/// concern `root` and what is below it.
///
/// # Panics
/// The child cannot be traced.
#[must_use]
pub fn trace(child: Child, root: &Path, go: impl FnOnce(&mut Child)) -> Traced {
    trace_from(child, root, None, go)
}

/// The same for a program that knows nothing of this: a shell waits for a line, and then becomes it. The fault is armed from
/// the program's first call on.
///
/// # Panics
/// The child cannot be traced.
#[must_use]
pub fn trace_program(child: Child, root: &Path, fault: Fault, go: impl FnOnce(&mut Child)) -> Traced {
    trace_from(child, root, Some(fault), go)
}

fn trace_from(mut child: Child, root: &Path, at_exec: Option<Fault>, go: impl FnOnce(&mut Child)) -> Traced {
    let pid = |id: u32| Pid::from_raw(i32::try_from(id).expect("a process id"));
    let process = pid(child.id());
    let mut tracer = Tracer {
        process,
        root: root.to_owned(),
        armed: None,
        at_exec,
        connections: HashSet::new(),
        threads: HashMap::new(),
        step: 0,
        traced: Traced::default(),
    };
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs") {
        let thread = thread.expect("an entry").file_name();
        let thread = pid(thread.to_str().and_then(|id| id.parse().ok()).expect("a number"));
        ptrace::seize(thread, options).expect("its own child may be traced");
        tracer.threads.insert(thread, None);
    }
    go(&mut child);
    tracer.run();
    if let Some(armed) = &tracer.armed {
        tracer.traced.calls = armed.calls;
    }
    tracer.traced
}

impl Tracer {
    fn run(&mut self) {
        // Only the children of this thread: other threads of the process have their own.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        loop {
            match waitpid(None, Some(flags)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == self.process => {
                    self.traced.success = code == 0;
                    self.traced.code = Some(code);
                    self.traced.end = format!("exit code {code}");
                    return;
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.process => {
                    self.traced.end = format!("signal {signal}");
                    return;
                }
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) => drop(self.threads.remove(&pid)),
                Ok(WaitStatus::PtraceSyscall(pid)) => {
                    // A thread that was killed meanwhile is reported by its exit.
                    let _ = self.at_call(pid);
                    self.resume(pid, None);
                }
                Ok(WaitStatus::PtraceEvent(pid, _, event)) => {
                    self.threads.entry(pid).or_insert(None);
                    if event == ptrace::Event::PTRACE_EVENT_EXEC as i32
                        && let Some(fault) = self.at_exec.take()
                    {
                        let errno = u16::try_from(fault.errno.raw_os_error()).expect("a small number");
                        self.arm(fault.class, errno, fault.at, fault.lasting);
                    }
                    self.resume(pid, None);
                }
                Ok(WaitStatus::Stopped(pid, Signal::SIGUSR2)) => {
                    self.threads.entry(pid).or_insert(None);
                    self.wake(pid);
                    self.resume(pid, None);
                }
                Ok(WaitStatus::Stopped(pid, signal)) => {
                    self.threads.entry(pid).or_insert(None);
                    self.resume(pid, Some(signal));
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => panic!("wait for a traced child: {error}"),
            }
        }
    }

    fn arm(&mut self, class: Class, errno: u16, at: u16, lasting: bool) {
        self.traced.last.clear();
        self.armed = Some(Armed { class, at: at.into(), lasting, errno, calls: 0, failed: 0 });
    }

    /// Has every thread stop at its calls.
    fn wake(&mut self, awake: Pid) {
        self.armed = Some(Armed { class: Class::Thread, at: u32::MAX, lasting: false, errno: 0, calls: 0, failed: 0 });
        for thread in self.threads.keys().filter(|thread| **thread != awake) {
            // One that has just ended needs none.
            let _ = ptrace::interrupt(*thread);
        }
    }

    fn resume(&mut self, pid: Pid, signal: Option<Signal>) {
        let within = self.threads.get(&pid).is_some_and(Option::is_some);
        let resumed =
            if self.armed.is_some() || within { ptrace::syscall(pid, signal) } else { ptrace::cont(pid, signal) };
        if resumed.is_err() {
            self.threads.remove(&pid);
        }
    }

    fn at_call(&mut self, pid: Pid) -> nix::Result<()> {
        let mut registers = ptrace::getregs(pid)?;
        let within = self.threads.entry(pid).or_insert(None).take();
        match within {
            None if registers.rax.cast_signed() == -i64::from(Errno::ENOSYS as i32) => {
                let answer = self.answer(pid, &registers);
                self.threads.insert(pid, Some(answer.map_or(Within::Call, Within::Answered)));
                if answer.is_some() {
                    registers.orig_rax = u64::MAX;
                    ptrace::setregs(pid, registers)?;
                }
            }
            Some(Within::Answered(answer)) => {
                registers.rax = answer.cast_unsigned();
                ptrace::setregs(pid, registers)?;
            }
            // The end of a call that was made, or of one that began before the tracer listened.
            Some(Within::Call) | None => {}
        }
        Ok(())
    }

    /// The answer of a call that is not to be made.
    fn answer(&mut self, pid: Pid, registers: &nix::libc::user_regs_struct) -> Option<i64> {
        let arguments = [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9];
        let number = registers.orig_rax;
        if number == LSEEK && arguments[1] & (0xffff << 48) == MAGIC {
            return Some(self.word(arguments[1] & !(0xffff << 48)));
        }
        if number == CLOSE {
            self.connections.remove(&descriptor(arguments[0]));
        }
        let call = CALLS.iter().find(|call| call.number == number)?;
        if number == CONNECT && read_word(pid, arguments[1]).is_some_and(|word| is_ip(word & 0xffff)) {
            self.connections.insert(descriptor(arguments[0]));
        }
        let armed = self.armed.as_ref()?;
        if armed.at == u32::MAX || !self.counts(pid, call, &arguments, armed.class) {
            return None;
        }
        if armed.class == Class::Sync {
            let path = call.places.iter().map(|place| self.shown(pid, *place, &arguments)).collect();
            self.traced.syncs.push(Sync { step: self.step, call: call.name, path });
        }
        let armed = self.armed.as_mut()?;
        armed.calls += 1;
        if armed.calls < armed.at || (!armed.lasting && armed.failed > 0) {
            return None;
        }
        armed.failed += 1;
        let (calls, errno) = (armed.calls, armed.errno);
        self.traced.failed += 1;
        *self.traced.by_call.entry(call.name).or_default() += 1;
        let about = call.places.iter().map(|place| self.shown(pid, *place, &arguments)).collect::<Vec<_>>();
        if self.traced.last.len() >= 40 {
            self.traced.last.remove(0);
        }
        let answer = if errno == 0 { "not done".to_owned() } else { Errno::from_raw(errno.into()).to_string() };
        self.traced.last.push(format!("{calls}: {}({}) = {answer}", call.name, about.join(", ")));
        Some(-i64::from(errno))
    }

    /// Handles a word from the child.
    fn word(&mut self, word: u64) -> i64 {
        let bits = |from: u32, count: u32| word >> from & ((1 << count) - 1);
        let sixteen = |from| u16::try_from(bits(from, 16)).expect("sixteen bits");
        if bits(40, 8) == DISARM {
            let armed = self.armed.take();
            self.traced.calls = armed.as_ref().map_or(0, |armed| armed.calls);
            return armed.map_or(0, |armed| i64::from(armed.failed) << 32 | i64::from(armed.calls));
        }
        if bits(40, 8) == STEP {
            self.step = sixteen(0);
            return 0;
        }
        let class = Class::of(bits(40, 8)).expect("one of ours");
        self.arm(class, sixteen(16), sixteen(0), bits(32, 1) == 1);
        0
    }

    fn counts(&self, pid: Pid, call: &Call, arguments: &[u64; 6], class: Class) -> bool {
        let does = match call.number {
            OPENAT => open_does(arguments[2]),
            // The flags are the first word of a structure.
            OPENAT2 => open_does(read_word(pid, arguments[2]).unwrap_or(0)),
            _ => call.does,
        };
        let opens = call.does == Does::Open;
        let kind = match class {
            Class::Space => does == Does::Take,
            Class::Change => matches!(does, Does::Take | Does::Change),
            Class::Any => !matches!(does, Does::Pipe | Does::Start | Does::Talk | Does::Mount),
            Class::Descriptor => return (opens && !self.is_of_loader(pid, call, arguments)) || does == Does::Pipe,
            Class::Thread => return does == Does::Start,
            Class::Sync => SYNCS.contains(&call.number),
            Class::Network => return self.is_of_network(call, arguments),
            Class::Mount => return does == Does::Mount || self.is_of_loop(pid, call, arguments),
        };
        kind && call.places.iter().any(|place| self.is_below(pid, *place, arguments))
    }

    fn is_of_network(&self, call: &Call, arguments: &[u64; 6]) -> bool {
        match call.places {
            _ if call.number == SOCKET => is_ip(arguments[0]),
            [PathArgument::Fd(fd)] => self.connections.contains(&descriptor(arguments[*fd])),
            _ => false,
        }
    }

    /// Returns true if the path is a library, without which there is no program yet.
    fn is_of_loader(&self, pid: Pid, call: &Call, arguments: &[u64; 6]) -> bool {
        let paths = call.places.iter().filter_map(|place| self.path(pid, *place, arguments));
        paths
            .into_iter()
            .any(|path| ["/lib", "/lib64", "/usr/lib", "/etc/ld.so.cache"].iter().any(|of| path.starts_with(of)))
    }

    fn is_of_loop(&self, pid: Pid, call: &Call, arguments: &[u64; 6]) -> bool {
        let is_loop = |path: PathBuf| path.to_str().is_some_and(|path| path.starts_with("/dev/loop"));
        call.places.iter().any(|place| self.path(pid, *place, arguments).is_some_and(is_loop))
    }

    fn is_below(&self, pid: Pid, place: PathArgument, arguments: &[u64; 6]) -> bool {
        self.path(pid, place, arguments).is_some_and(|path| path.starts_with(&self.root))
    }

    fn path(&self, pid: Pid, place: PathArgument, arguments: &[u64; 6]) -> Option<PathBuf> {
        match place {
            PathArgument::Fd(fd) => of_descriptor(pid, arguments[fd]),
            PathArgument::Path(path) => Some(through_descriptors(pid, read_text(pid, arguments[path])?)),
            PathArgument::At(fd, path) => {
                let path = read_text(pid, arguments[path]).map(|path| through_descriptors(pid, path));
                match path {
                    Some(path) if path.is_absolute() => Some(path),
                    path => Some(of_descriptor(pid, arguments[fd])?.join(path.unwrap_or_default())),
                }
            }
        }
    }

    fn shown(&self, pid: Pid, place: PathArgument, arguments: &[u64; 6]) -> String {
        let path = self.path(pid, place, arguments).unwrap_or_default();
        path.strip_prefix(&self.root).unwrap_or(&path).display().to_string()
    }
}

/// The upper half of an argument is not the kernel's business.
fn descriptor(argument: u64) -> u64 {
    argument & 0xffff_ffff
}

/// Returns true if addresses of this family are IP's.
fn is_ip(family: u64) -> bool {
    [nix::libc::AF_INET, nix::libc::AF_INET6].into_iter().any(|ip| u64::try_from(ip) == Ok(family))
}

/// Where a descriptor leads.
fn of_descriptor(pid: Pid, fd: u64) -> Option<PathBuf> {
    let fd = u32::try_from(descriptor(fd)).ok()?.cast_signed();
    if fd < 3 { None } else { std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok() }
}

/// Attributes are set by the name of a descriptor.
fn through_descriptors(pid: Pid, path: PathBuf) -> PathBuf {
    let Ok(rest) = path.strip_prefix("/proc/self/fd") else { return path };
    let mut parts = rest.components();
    let fd = parts.next().and_then(|fd| fd.as_os_str().to_str()?.parse().ok());
    fd.and_then(|fd| of_descriptor(pid, fd)).map_or_else(|| path.clone(), |base| base.join(parts.as_path()))
}

fn memory(pid: Pid) -> Option<File> {
    File::open(format!("/proc/{pid}/mem")).ok()
}

fn read_word(pid: Pid, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory(pid)?.read_exact_at(&mut bytes, at).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

fn read_text(pid: Pid, at: u64) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    if at == 0 {
        return None;
    }
    let memory = memory(pid)?;
    let (mut text, mut at) = (Vec::new(), at);
    // Up to the end of a page at a time: behind it there may be nothing.
    while text.len() < 4096 {
        let length = usize::try_from(256 - at % 256).expect("no more than that");
        let mut bytes = [0; 256];
        memory.read_exact_at(&mut bytes[..length], at).ok()?;
        match bytes[..length].iter().position(|byte| *byte == 0) {
            Some(end) => {
                text.extend_from_slice(&bytes[..end]);
                return Some(std::ffi::OsString::from_vec(text).into());
            }
            None => text.extend_from_slice(&bytes[..length]),
        }
        at += length as u64;
    }
    None
}
