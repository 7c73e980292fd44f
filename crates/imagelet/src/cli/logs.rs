//! `imagelet logs`: output of containers, from the files that the runtime writes. Asks the runtime for the files and, while following one,
//! whether its container is still running; [`kuberuntime::logs`] reads them.

use base::lock::Mutex;
use std::io::{self, Stdout, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cri_api::{ContainerState, Kind, RuntimeService};
use jiff::Timestamp;
use kuberuntime::logs::{LogLocation, LogOptions, LogReader, LogStep};

use super::not_started;
use super::target::{self, FoundPod, PodName};
use crate::app::App;
use crate::args::Logs;
use crate::exit::{Code, Failure, Outcome};

/// Poll interval of a followed log.
const POLL: Duration = Duration::from_millis(100);
/// Interval at which the runtime is asked whether the container is still running.
const ASK: Duration = Duration::from_secs(1);
/// Maximum length of a line that is never interleaved with another container's.
const LONGEST_LINE: usize = 64 << 10;

pub(super) async fn run(app: &App, args: &Logs) -> Outcome {
    let name = PodName::parse(&args.pod, args.namespace.as_deref())?;
    let runtime = target::runtime(app).await?;
    let service = &runtime;
    let pod = match FoundPod::find(service.as_ref(), &name).await {
        Ok(pod) => pod,
        Err(failure) => return Err(not_started::explain_absent(app, &name, failure).await),
    };
    let containers = if args.all_containers {
        pod.all_names()
    } else {
        let chosen = pod.container(args.container.as_deref())?;
        if let Some(note) = chosen.note {
            tracing::warn!("{note}");
        }
        vec![chosen.name]
    };
    let since = since(args)?;
    let mut logs = Vec::new();
    let mut missing = Vec::new();
    for container in containers {
        match find(app, service.as_ref(), &pod, &container, args).await {
            Ok(found) => {
                let prefix = args.prefix.then(|| format!("[pod/{}/{container}] ", pod.known.name));
                logs.push(Log { container, found, prefix });
            }
            Err(failure) => missing.push(failure),
        }
    }
    // Of several containers, some may have no log yet: the logs of the others are still shown.
    let failure = Failure::all(missing);
    if let (true, Some(failure)) = (logs.is_empty(), &failure) {
        return Err(Failure::new(failure.code(), failure.lines().join("; ")));
    }
    let several = logs.len() > 1;
    let out = Arc::new(Mutex::new(io::stdout()));
    let options = LogOptions {
        tail: args.tail.and_then(|lines| lines.0),
        since,
        timestamps: args.timestamps,
        limit_bytes: args.limit_bytes,
    };
    let shown = logs.into_iter().map(|log| {
        let sink = Sink::new(Arc::clone(&out), log.prefix.clone(), several);
        show(service.as_ref(), log, options.clone(), sink, args.follow)
    });
    let outcomes: Vec<Outcome> = if args.follow {
        futures::future::join_all(shown).await
    } else {
        let mut outcomes = Vec::new();
        for one in shown {
            outcomes.push(one.await);
        }
        outcomes
    };
    let failures = outcomes.into_iter().filter_map(Result::err).chain(failure).collect();
    Failure::all(failures).map_or(Ok(()), Err)
}

fn since(args: &Logs) -> Outcome<Option<Timestamp>> {
    let Some(age) = args.since else { return Ok(args.since_time) };
    let age = jiff::SignedDuration::try_from(age).ok();
    let since = age.and_then(|age| Timestamp::now().checked_sub(age).ok());
    since.map(Some).ok_or_else(|| Failure::usage("--since: that is longer ago than time goes"))
}

/// The log of a run.
struct LogFile {
    id: String,
    location: LogLocation,
}

struct Log {
    container: String,
    found: LogFile,
    prefix: Option<String>,
}

async fn find(
    app: &App,
    service: &dyn RuntimeService,
    pod: &FoundPod,
    container: &str,
    args: &Logs,
) -> Outcome<LogFile> {
    let title = pod.known.title();
    let runs = pod.runs(container);
    let Some(run) = runs.get(usize::from(args.previous)) else {
        if args.previous && !runs.is_empty() {
            let what = format!("previous terminated container {container:?} in pod {title} not found");
            return Err(Failure::failed(what));
        }
        let why = not_started::reason(app, &pod.known, container).await;
        return Err(never_started(container, &title, why));
    };
    let status = service.container_status(&run.id, false).await;
    let status = status.map_err(|error| Failure::call(format!("find the log of container {container:?}"), &error))?;
    // A container that is about to start is followed.
    let is_expected = args.follow && status.state == ContainerState::Created;
    if status.started_at == 0 && status.state != ContainerState::Running && !is_expected {
        let why = Some(not_started::with_message(&status.reason, &status.message)).filter(|why| !why.is_empty());
        let why = if why.is_some() { why } else { not_started::reason(app, &pod.known, container).await };
        return Err(never_started(container, &title, why));
    }
    let location = LogLocation::of(&status).ok_or_else(|| {
        Failure::failed(format!("the runtime keeps no log of container {container:?} in pod {title}"))
    })?;
    Ok(LogFile { id: run.id.clone(), location })
}

fn never_started(container: &str, pod: &str, why: Option<String>) -> Failure {
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Failure::failed(format!("container {container:?} in pod {pod} has not started{why}"))
}

/// The reader and the sink, which each step returns.
struct Reading {
    reader: LogReader,
    sink: Sink,
}

async fn show(service: &dyn RuntimeService, log: Log, options: LogOptions, sink: Sink, follow: bool) -> Outcome {
    let location = &log.found.location;
    let unreadable = |error: io::Error| unreadable(&log.container, location.path(), &error);
    let mut ended = std::pin::pin!(ended(service, &log.found.id));
    let reader = loop {
        let (location, options) = (location.clone(), options.clone());
        match blocking(move || LogReader::open(&location, options)).await {
            // The container was created, but not started yet.
            Err(error) if follow && error.kind() == io::ErrorKind::NotFound => tokio::select! {
                () = &mut ended => return Err(unreadable(error)),
                () = tokio::time::sleep(POLL) => {}
            },
            opened => break opened.map_err(unreadable)?,
        }
    };
    let mut reading = Reading { reader, sink };
    if !follow {
        return done(blocking(move || reading.finish()).await, unreadable);
    }
    loop {
        let step;
        (reading, step) = match blocking(move || reading.step()).await {
            Ok(step) => step,
            Err(error) => return done(Err(error), unreadable),
        };
        if step == LogStep::Full {
            return Ok(());
        }
        tokio::select! {
            () = &mut ended => return done(blocking(move || reading.finish()).await, unreadable),
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

impl Reading {
    fn step(mut self) -> io::Result<(Self, LogStep)> {
        let step = self.reader.step(&mut self.sink)?;
        self.sink.flush()?;
        Ok((self, step))
    }

    fn finish(mut self) -> io::Result<()> {
        self.reader.finish(&mut self.sink)?;
        self.sink.end()
    }
}

/// Converts a result. A closed pipe is no failure.
fn done(result: io::Result<()>, unreadable: impl FnOnce(io::Error) -> Failure) -> Outcome {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(unreadable),
    }
}

fn unreadable(container: &str, path: &Path, error: &io::Error) -> Failure {
    let code = if error.kind() == io::ErrorKind::PermissionDenied { Code::NotPermitted } else { Code::Failed };
    let what = match error.kind() {
        io::ErrorKind::NotFound => format!("the log of container {container:?} is gone: {}", path.display()),
        _ => format!("the log of container {container:?}: {}: {error}", path.display()),
    };
    Failure::new(code, what)
}

/// Waits until a container has ended. A runtime that is temporarily unavailable is asked again.
async fn ended(service: &dyn RuntimeService, id: &str) {
    loop {
        match service.container_status(id, false).await {
            Ok(status) if status.state == ContainerState::Exited => return,
            Err(error) if error.kind() == Kind::NotFound => return,
            Ok(_) | Err(_) => tokio::time::sleep(ASK).await,
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    base::blocking(work).await.unwrap_or_else(|| Err(io::Error::other("the program ends")))
}

/// The destination of a container's lines: stdout, with an optional prefix per line, and in whole lines if several containers write.
struct Sink<W: Write = Stdout> {
    out: Arc<Mutex<W>>,
    prefix: Option<String>,
    whole_lines: bool,
    at_line_start: bool,
    kept: Vec<u8>,
}

impl<W: Write> Sink<W> {
    fn new(out: Arc<Mutex<W>>, prefix: Option<String>, whole_lines: bool) -> Self {
        Self { out, prefix, whole_lines, at_line_start: true, kept: Vec::new() }
    }

    /// Writes the buffered whole lines, or everything.
    fn forward(&mut self, everything: bool) -> io::Result<()> {
        let end = match self.kept.iter().rposition(|byte| *byte == b'\n') {
            _ if everything || !self.whole_lines || self.kept.len() > LONGEST_LINE => self.kept.len(),
            Some(end) => end + 1,
            None => return Ok(()),
        };
        let mut out = self.out.lock();
        out.write_all(&self.kept[..end])?;
        out.flush()?;
        self.kept.drain(..end);
        Ok(())
    }

    /// Ends the output of the container.
    fn end(&mut self) -> io::Result<()> {
        // Output of the next container must start on a new line.
        if self.whole_lines && !self.at_line_start {
            self.kept.push(b'\n');
        }
        self.forward(true)
    }
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if let Some(prefix) = self.prefix.as_deref().filter(|_| self.at_line_start) {
                self.kept.extend_from_slice(prefix.as_bytes());
            }
            self.kept.extend_from_slice(line);
            self.at_line_start = line.ends_with(b"\n");
        }
        if self.kept.len() > LONGEST_LINE {
            self.forward(false)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.forward(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(out: &Arc<Mutex<Vec<u8>>>, prefix: &str, whole: bool) -> Sink<Vec<u8>> {
        Sink::new(Arc::clone(out), (!prefix.is_empty()).then(|| prefix.to_owned()), whole)
    }

    fn text(out: &Mutex<Vec<u8>>) -> String {
        String::from_utf8(out.lock().clone()).unwrap()
    }

    #[test]
    fn lines_of_several_containers_stay_whole() {
        let out = Arc::new(Mutex::new(Vec::new()));
        let (mut a, mut b) = (sink(&out, "[a] ", true), sink(&out, "", true));
        let write = |sink: &mut Sink<Vec<u8>>, text: &str| {
            sink.write_all(text.as_bytes()).unwrap();
            sink.flush().unwrap();
        };
        write(&mut a, "one\ntw");
        write(&mut b, "uno\n");
        write(&mut a, "o\n\nthree");
        write(&mut b, "dos");
        assert_eq!(text(&out), "[a] one\nuno\n[a] two\n[a] \n");
        a.end().unwrap();
        b.end().unwrap();
        assert_eq!(text(&out), "[a] one\nuno\n[a] two\n[a] \n[a] three\ndos\n");
    }

    #[test]
    fn one_container_is_shown_as_it_wrote() {
        let out = Arc::new(Mutex::new(Vec::new()));
        let mut sink = sink(&out, "", false);
        sink.write_all(b"password: ").unwrap();
        sink.flush().unwrap();
        assert_eq!(text(&out), "password: ");
        sink.end().unwrap();
        assert_eq!(text(&out), "password: ");
    }
}
