//! Commands in containers, and streams to them.

/// Answer of [`RuntimeService::exec_sync`](super::RuntimeService::exec_sync).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecSyncOutput {
    /// Standard output of the command; runtimes cut it at some megabytes.
    pub stdout: Vec<u8>,
    /// Standard error of the command, cut likewise.
    pub stderr: Vec<u8>,
    /// Exit code of the command.
    pub exit_code: i32,
}

/// Request of [`RuntimeService::exec`](super::RuntimeService::exec). At least one of the streams must be wanted; a
/// terminal has no standard error of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecRequest {
    /// Which container.
    pub container_id: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// With a terminal.
    pub tty: bool,
    /// With standard input.
    pub stdin: bool,
    /// With standard output.
    pub stdout: bool,
    /// With standard error; not together with `tty`.
    pub stderr: bool,
}

/// Request of [`RuntimeService::attach`](super::RuntimeService::attach). At least one of the streams must be wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachRequest {
    /// Which container.
    pub container_id: String,
    /// With a terminal; the container must have one.
    pub tty: bool,
    /// With standard input.
    pub stdin: bool,
    /// With standard output.
    pub stdout: bool,
    /// With standard error; not together with `tty`.
    pub stderr: bool,
}
