//! `imagelet exec` and `imagelet attach`: a command in a container, or the container's own process, with the streams of this process. Asks
//! the runtime and no agent.

use std::sync::Arc;

use cluster::kubelet_api::StreamAddress;
use cri_api::{AttachRequest, ExecRequest, RuntimeService};

use super::not_started;
use super::target::{FoundPod, PodName, runtime};
use crate::app::App;
use crate::args::{Attach, Exec, ThePod};
use crate::exit::{Code, Failure, Outcome};
use crate::streaming::connect;
use crate::streaming::remote_command::{Ended, PROTOCOLS, Streams, run};
use crate::streaming::terminal::{Raw, Sizes, is_terminal};

/// Ctrl-P Ctrl-Q, as in docker: detaches even from a process that ends on no key.
const LEAVE: &[u8] = &[16, 17];
/// The exit code of a shell for a program that wrote to a closed pipe.
const UNREAD: u8 = 141;

pub(super) async fn exec(app: &App, args: &Exec) -> Outcome {
    let (runtime, id) = find(app, &args.pod, args.container.as_deref()).await?;
    let tty = terminal(args.tty, args.stdin);
    let request = ExecRequest {
        container_id: id,
        command: args.command().to_vec(),
        tty,
        stdin: args.stdin,
        stdout: true,
        stderr: !tty,
    };
    let url = runtime.exec(&request).await.map_err(|error| Failure::call("exec", &error))?;
    match stream(&url, args.stdin, tty, &[]).await? {
        Ended::Exited(0) | Ended::Left => Ok(()),
        // A shell sees only the low eight bits of an exit code.
        Ended::Exited(code) => Err(Failure::ended(u8::try_from(code & 0xff).ok().filter(|c| *c > 0).unwrap_or(1))),
        Ended::Unread => Err(Failure::ended(UNREAD)),
        Ended::Failed(message) => Err(Failure::failed(format!("exec: {message}"))),
    }
}

pub(super) async fn attach(app: &App, args: &Attach) -> Outcome {
    let (runtime, id) = find(app, &args.pod, args.container.as_deref()).await?;
    let tty = terminal(args.tty, args.stdin);
    let request = AttachRequest { container_id: id, tty, stdin: args.stdin, stdout: true, stderr: !tty };
    let url = runtime.attach(&request).await.map_err(|error| Failure::call("attach", &error))?;
    let leave = if tty { LEAVE } else { &[] };
    if tty {
        tracing::info!("Ctrl-P Ctrl-Q leaves it; if there is no prompt, try Enter");
    }
    match stream(&url, args.stdin, tty, leave).await? {
        Ended::Exited(_) | Ended::Left => Ok(()),
        Ended::Unread => Err(Failure::ended(UNREAD)),
        Ended::Failed(message) => Err(Failure::failed(format!("attach: {message}"))),
    }
}

/// Returns the runtime, and the id of the selected container, which must be running.
async fn find(app: &App, pod: &ThePod, container: Option<&str>) -> Outcome<(Arc<dyn RuntimeService>, String)> {
    let name = PodName::parse(&pod.pod, pod.namespace.as_deref())?;
    let runtime = runtime(app).await?;
    let found = match FoundPod::find(runtime.as_ref(), &name).await {
        Ok(found) => found,
        Err(failure) => return Err(not_started::explain_absent(app, &name, failure).await),
    };
    let chosen = found.container(container)?;
    if let Some(note) = chosen.note.as_ref().filter(|_| !app.printer.quiet) {
        tracing::info!("{note}");
    }
    match found.running(&chosen.name) {
        Ok(running) => Ok((runtime, running.id.clone())),
        Err(failure) => {
            let why = not_started::reason(app, &found.known, &chosen.name).await;
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            Err(Failure::new(failure.code(), format!("{}{why}", failure.lines().join("; "))))
        }
    }
}

/// Returns true if a terminal is allocated: only if standard input is one as well.
fn terminal(tty: bool, stdin: bool) -> bool {
    match (tty, stdin, is_terminal()) {
        (true, true, false) => {
            tracing::warn!("standard input is no terminal: there will be none in the container");
            false
        }
        (true, false, _) => {
            tracing::warn!("-t without -i: there will be no terminal in the container");
            false
        }
        (tty, ..) => tty,
    }
}

async fn stream(url: &str, stdin: bool, tty: bool, leave: &'static [u8]) -> Outcome<Ended> {
    let address = StreamAddress::parse(url)?;
    let session = connect(&address, &PROTOCOLS).await?;
    let failed = |error: std::io::Error| Failure::caused(Code::Failed, "the terminal", &error);
    // The terminal is restored when this is dropped, also after a signal.
    let _raw = if tty { Some(Raw::enter().map_err(failed)?) } else { None };
    let streams = Streams {
        stdin: stdin.then(tokio::io::stdin),
        stdout: tokio::io::stdout(),
        stderr: (!tty).then(tokio::io::stderr),
        sizes: if tty { Some(Sizes::listen().map_err(failed)?) } else { None },
        leave,
    };
    run(session, streams).await.map_err(|error| Failure::caused(Code::Unreachable, "streams of the container", &error))
}
