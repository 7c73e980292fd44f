//! An observer of containers that asks containerd alone: its events report started and ended processes, its list the pod of each
//! container. A container that is started twice, or while another one of its name runs, is wrong. Called by the tests of faults
//! of a cluster.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use base::lock::Mutex;
use cri_api::RuntimeService as _;
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_runtime_service};
use serde_json::Value;

use super::Containerd;
use super::process::Daemon;

/// A container by the pod that it is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) container: String,
    pub(crate) attempt: u32,
}

/// Containers by id; `None` for a sandbox.
type Names = BTreeMap<String, Option<Named>>;

/// All starts and ends of containers since the beginning.
pub(crate) struct StartLog {
    events: Arc<Daemon>,
    names: Arc<Mutex<Names>>,
    over: Arc<AtomicBool>,
    lister: Option<JoinHandle<()>>,
}

impl StartLog {
    /// Starts to watch.
    #[track_caller]
    pub(crate) fn follow(containerd: &Containerd) -> Self {
        let ctr = containerd.ctr();
        let args: Vec<String> = ctr.get_args().map(|arg| arg.display().to_string()).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).chain(["events"]).collect();
        let events = Arc::new(Daemon::start(ctr.get_program().as_ref(), &args));
        let (names, over) = (Arc::<Mutex<Names>>::default(), Arc::new(AtomicBool::new(false)));
        let endpoint = Endpoint::parse(&containerd.endpoint()).expect("an endpoint");
        let (listed, ended, seen) = (Arc::clone(&names), Arc::clone(&over), Arc::clone(&events));
        let lister = thread::spawn(move || list(&endpoint, ctr, &seen, &listed, &ended));
        Self { events, names, over, lister: Some(lister) }
    }

    /// Asserts that nothing was started twice so far. The answer is how often each container was started, by pod's uid and container.
    #[track_caller]
    pub(crate) fn is_sound(&self, context: &str) -> BTreeMap<(String, String), usize> {
        let lines = self.events.lines();
        let events: Vec<Event> = lines.iter().filter_map(|line| event(line)).collect();
        let (starts, wrong) = judge(&events, &self.names.lock());
        assert!(wrong.is_empty(), "{context}: containers were started wrongly:\n{}", wrong.join("\n"));
        starts
    }
}

impl Drop for StartLog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(lister) = self.lister.take() {
            let _ = lister.join();
        }
    }
}

/// Records the identity of every container as soon as it appears: some are removed a moment later.
fn list(endpoint: &Endpoint, mut ctr: Command, events: &Daemon, names: &Mutex<Names>, over: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let service = runtime.block_on(connect_runtime_service(endpoint, ClientOptions::default())).expect("connect");
    let (mut read, mut first) = (0, true);
    // Containers that no list has shown yet, and whether containerd was asked for their kind.
    let mut unknown: BTreeMap<String, bool> = BTreeMap::new();
    ctr.args(["containers", "info"]);
    while !over.load(Ordering::Relaxed) {
        let lines = events.lines_after(read);
        read += lines.len();
        for line in &lines {
            match creation(line) {
                Some((id, true)) => unknown.insert(id, false),
                Some((id, false)) => unknown.remove(&id),
                None => None,
            };
        }
        if first || !unknown.is_empty() {
            let lists = runtime
                .block_on(async { (service.list_pod_sandboxes(None).await, service.list_containers(None).await) });
            if let (Ok(sandboxes), Ok(containers)) = lists {
                let mut names = names.lock();
                names.extend(sandboxes.into_iter().map(|sandbox| (sandbox.id, None)));
                names.extend(containers.into_iter().map(|container| {
                    let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
                    let named = Named {
                        pod: label("io.kubernetes.pod.name"),
                        uid: label("io.kubernetes.pod.uid"),
                        container: label("io.kubernetes.container.name"),
                        attempt: container.metadata.attempt,
                    };
                    (container.id, Some(named))
                }));
                unknown.retain(|id, _| !names.contains_key(id));
                first = false;
            }
            // A sandbox whose start is given up is never listed.
            for (id, asked) in unknown.iter_mut().filter(|(_, asked)| !**asked) {
                let mut info = Command::new(ctr.get_program());
                let Ok(output) = info.args(ctr.get_args()).arg(id).output() else { continue };
                let info: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
                if info["Labels"]["io.cri-containerd.kind"] == "sandbox" {
                    names.lock().entry(id.clone()).or_insert(None);
                }
                *asked = true;
            }
        }
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// A container that is created or deleted, by a line of `ctr events`: its id, and whether it is created.
fn creation(line: &str) -> Option<(String, bool)> {
    let (head, body) = line.split_once(" {")?;
    let is_new = match head.rsplit(' ').next()? {
        "/containers/create" => true,
        "/containers/delete" => false,
        _ => return None,
    };
    let body: Value = serde_json::from_str(&format!("{{{body}")).ok()?;
    Some((body["id"].as_str()?.to_owned(), is_new))
}

/// The start or the end of a container's process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Started(String),
    Ended(String),
}

/// An event in a line of `ctr events`.
fn event(line: &str) -> Option<Event> {
    let (head, body) = line.split_once(" {")?;
    let body: Value = serde_json::from_str(&format!("{{{body}")).ok()?;
    let id = body["container_id"].as_str()?.to_owned();
    match head.rsplit(' ').next()? {
        "/tasks/start" => Some(Event::Started(id)),
        // Programs that run in a container in addition to its own have other ids.
        "/tasks/exit" if body["id"] == id.as_str() => Some(Event::Ended(id)),
        _ => None,
    }
}

/// Counts starts by pod and container, and says what is wrong with them.
fn judge(events: &[Event], names: &Names) -> (BTreeMap<(String, String), usize>, Vec<String>) {
    let (mut counts, mut wrong) = (BTreeMap::<_, usize>::new(), Vec::new());
    // The last attempt of each container, and the one that runs.
    let (mut last, mut running) = (BTreeMap::new(), BTreeMap::new());
    for event in events {
        let (Event::Started(id) | Event::Ended(id)) = event;
        let Some(named) = names.get(id) else {
            // A container that ends without a start was removed before it was listed.
            if matches!(event, Event::Started(_)) {
                wrong.push(format!("{event:?}: nobody knows what it is"));
            }
            continue;
        };
        let Some(named) = named else { continue };
        let key = (named.uid.clone(), named.container.clone());
        match event {
            Event::Ended(_) => {
                if running.get(&key) == Some(id) {
                    running.remove(&key);
                }
            }
            Event::Started(_) => {
                *counts.entry(key.clone()).or_default() += 1;
                if let Some(other) = running.insert(key.clone(), id.clone()) {
                    wrong.push(format!("{named:?} was started while {other} ran"));
                }
                if let Some(attempt) = last.insert(key, named.attempt)
                    && attempt >= named.attempt
                {
                    wrong.push(format!("{named:?} was started after attempt {attempt}"));
                }
            }
        }
    }
    (counts, wrong)
}

mod tests {
    use super::*;

    #[test]
    fn starts_that_are_wrong_are_seen() {
        let named = |attempt: u32| {
            let word = str::to_owned;
            Some(Named { pod: word("web"), uid: word("u"), container: word("c"), attempt })
        };
        let names = [("s", None), ("a", named(0)), ("b", named(1)), ("again", named(0))];
        let names: Names = names.into_iter().map(|(id, named)| (id.to_owned(), named)).collect();
        let cases = [
            (&["+s", "+a", "-a", "+b"][..], 2, ""),
            (&["+a", "+b"], 2, "was started while a ran"),
            (&["+a", "-a", "+again"], 2, "was started after attempt 0"),
            (&["+b", "-b", "+a"], 2, "was started after attempt 1"),
            (&["+x"], 0, "nobody knows"),
        ];
        for (script, count, want) in cases {
            let line = |word: &&str| {
                let (topic, id) = (if word.starts_with('+') { "start" } else { "exit" }, &word[1..]);
                format!(
                    "2026-11-24 06:00:00.1 +0000 UTC k8s.io /tasks/{topic} {{\"container_id\":\"{id}\",\"id\":\"{id}\"}}"
                )
            };
            let events: Vec<Event> = script.iter().filter_map(|word| event(&line(word))).collect();
            assert_eq!(events.len(), script.len());
            let (counts, wrong) = judge(&events, &names);
            let wrong = wrong.join("; ");
            assert!(if want.is_empty() { wrong.is_empty() } else { wrong.contains(want) }, "{want:?}: {wrong:?}");
            assert_eq!(counts.values().sum::<usize>(), count, "{script:?}");
        }
        let of_exec = "2026 k8s.io /tasks/exit {\"container_id\":\"a\",\"id\":\"exec\"}";
        assert_eq!((event(of_exec), creation(of_exec)), (None, None));
        for (topic, want) in [("create", true), ("delete", false)] {
            let line = format!("2026 k8s.io /containers/{topic} {{\"id\":\"a\",\"image\":\"i\"}}");
            assert_eq!((event(&line), creation(&line)), (None, Some(("a".to_owned(), want))));
        }
    }
}
