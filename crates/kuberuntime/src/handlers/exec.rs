//! Programs in containers, for hooks and for probes. The output is shown up to a limit. Called by [`super::Handlers`].

use std::time::Duration;

use cri_api::{ExecSyncOutput, Kind, RuntimeService};
use tokio::time::Instant;

use crate::environment::expand;
use crate::pod::{EnvSource, EnvVar};
use crate::probe::ProbeOutcome;

/// Maximum number of bytes of a program's output that are shown.
const MAX_OUTPUT: usize = 10 << 10;
/// A runtime that reports a timeout this much too late did not watch the program.
const RUNTIME_LATE: Duration = Duration::from_secs(30);

/// Outcome of a program, and whether it is worth asking again at once.
pub(super) struct ExecAnswer {
    pub(super) answer: ProbeOutcome,
    pub(super) text: String,
    pub(super) again: bool,
}

/// Asks a program in the container. `written` is the command as the manifest has it, which messages show; `command` has
/// the values of variables in it, and is not shown.
pub(super) async fn ask(
    runtime: &dyn RuntimeService,
    id: &str,
    written: &[String],
    command: &[String],
    timeout: Duration,
) -> ExecAnswer {
    let asked = Instant::now();
    let done = |answer, text| ExecAnswer { answer, text, again: false };
    match runtime.exec_sync(id, command, timeout).await {
        Ok(output) if output.exit_code == 0 => done(ProbeOutcome::Success, shown(&output)),
        Ok(output) => done(ProbeOutcome::Failure, shown(&output)),
        Err(error) if error.kind() == Kind::DeadlineExceeded => {
            if asked.elapsed() > timeout + RUNTIME_LATE {
                // The runtime is stuck, so the state of the container is unknown.
                return done(ProbeOutcome::Unknown, format!("the runtime does not answer: {error}"));
            }
            done(
                ProbeOutcome::Failure,
                format!("command {:?} timed out after {}s", written.join(" "), timeout.as_secs()),
            )
        }
        Err(error) => ExecAnswer { answer: ProbeOutcome::Unknown, text: error.to_string(), again: true },
    }
}

/// Runs a program as a hook.
///
/// # Errors
/// The hook failed: its error and output, for the log.
pub(super) async fn hook(
    runtime: &dyn RuntimeService,
    id: &str,
    command: &[String],
    limit: Option<Duration>,
) -> Result<(), String> {
    // Zero is no limit to a runtime.
    let timeout = limit.map_or(Duration::ZERO, |limit| limit.max(Duration::from_secs(1)));
    let output =
        runtime.exec_sync(id, command, timeout).await.map_err(|error| format!("error: {error}, message: \"\""))?;
    if output.exit_code == 0 {
        return Ok(());
    }
    Err(format!(
        "error: command '{}' exited with {}: {}, message: {:?}",
        command.join(" "),
        output.exit_code,
        limited(&output.stderr),
        shown(&output)
    ))
}

/// Returns a probe's command with the variables that the manifest sets in the container expanded.
pub(super) fn expanded(command: &[String], env: &[EnvVar]) -> Vec<String> {
    let value_of = |name: &str| {
        let variable = env.iter().rfind(|variable| variable.name == name)?;
        // As in the kubelet, one from elsewhere is known and empty.
        Some(if let EnvSource::Literal(value) = EnvSource::of(variable) { value } else { "" })
    };
    command.iter().map(|word| expand(word, value_of)).collect()
}

/// Output of a program, followed by its error output.
fn shown(output: &ExecSyncOutput) -> String {
    let mut text = limited(&output.stdout);
    let room = MAX_OUTPUT.saturating_sub(output.stdout.len());
    text.push_str(&limited(&output.stderr[..output.stderr.len().min(room)]));
    text
}

fn limited(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_OUTPUT)]).into_owned()
}
