//! `imagelet events`: events of pods, from the process that keeps the pods.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::pod_list::{agent, ask, choose};
use crate::app::App;
use crate::args::Events;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Report, Table};
use crate::pods::age;

/// Time that one request waits for more events.
const WAIT_SECONDS: u64 = 30;

/// An EventList.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct List {
    pub(super) items: Vec<Value>,
    metadata: ListMetadata,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
}

/// The displayed fields of an event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Event {
    pub(super) involved_object: Object,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) count: u64,
    pub(super) first_timestamp: Option<Timestamp>,
    pub(super) last_timestamp: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Object {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
    field_path: String,
}

impl Event {
    pub(super) fn of(value: &Value) -> Outcome<Self> {
        Self::deserialize(value).map_err(|e| Failure::caused(Code::Failed, "understand an event of the agent", &e))
    }

    /// Returns the age, such as `5s (x3 over 2m)`.
    pub(super) fn age(&self, now: Timestamp) -> String {
        let last = age::since(self.last_timestamp, now);
        if self.count > 1 {
            format!("{last} (x{} over {})", self.count, age::since(self.first_timestamp, now))
        } else {
            last
        }
    }

    /// Returns the message as kubectl shows it: without the line end of a probe's output.
    pub(super) fn text(&self) -> String {
        self.message.trim().to_owned()
    }

    fn object(&self) -> String {
        let Object { kind, name, field_path, .. } = &self.involved_object;
        let part = if field_path.is_empty() { String::new() } else { format!(" {field_path}") };
        format!("{}/{name}{part}", kind.to_lowercase())
    }

    /// Returns true if the event is about the pod of this uid.
    pub(super) fn is_of(&self, uid: &str) -> bool {
        self.involved_object.uid == uid
    }
}

struct EventReport {
    events: Vec<(Value, Event)>,
    now: Timestamp,
}

impl Serialize for EventReport {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let items: Vec<&Value> = self.events.iter().map(|(value, _)| value).collect();
        json!({"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": items}).serialize(serializer)
    }
}

impl Report for EventReport {
    fn table(&self, _: bool, _: bool) -> Table {
        let mut table = Table::new(&["NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]);
        for (_, event) in &self.events {
            let namespace = event.involved_object.namespace.clone();
            let (kind, reason) = (event.kind.clone(), event.reason.clone());
            table.row([namespace, event.age(self.now), kind, reason, event.object(), event.text()]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.events.iter().map(|(_, event)| event.object()).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.events.iter().map(|(_, event)| event.involved_object.uid.clone()).collect()
    }
}

pub(super) async fn run(app: &App, args: &Events) -> Outcome {
    // A removed pod still has events: its name is enough.
    let namespace = args.scope.namespace.as_deref();
    let wanted = match &args.pod {
        None => None,
        Some(name) => {
            let pods = choose(ask(app).await?.0, std::slice::from_ref(name), namespace);
            Some(pods.map_or_else(|_| name.rsplit('/').next().unwrap_or(name).to_owned(), |pods| pods[0].known().uid))
        }
    };
    let fits = |event: &Event| {
        let object = &event.involved_object;
        namespace.is_none_or(|namespace| namespace == object.namespace)
            && wanted.as_ref().is_none_or(|wanted| *wanted == object.uid || *wanted == object.name)
    };
    let mut list = since(app, 0, None).await?;
    let mut first = true;
    loop {
        let mut events = Vec::with_capacity(list.items.len());
        for value in list.items {
            let event = Event::of(&value)?;
            if fits(&event) {
                events.push((value, event));
            }
        }
        let now = Timestamp::now();
        if first || !app.printer.is_table() {
            if first || !events.is_empty() {
                app.printer.report(&EventReport { events, now })?;
            }
        } else if !events.is_empty() {
            // Columns without titles, no wider than these events need.
            let text = EventReport { events, now }.table(false, false).render();
            app.printer.lines(text.lines().skip(1))?;
        }
        if !args.watch {
            return Ok(());
        }
        first = false;
        let number = list.metadata.resource_version.parse().unwrap_or(0);
        list = since(app, number, Some(WAIT_SECONDS)).await?;
    }
}

/// Returns events after that of this number; waits for one if a time is given.
pub(super) async fn since(app: &App, number: u64, wait: Option<u64>) -> Outcome<List> {
    let wait = wait.map(|seconds| format!("&wait={seconds}")).unwrap_or_default();
    agent(app, &format!("/v1/events?since={number}{wait}")).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables() {
        let event = |reason: &str, count: u64, path: &str| {
            let value = json!({"involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-edge", "uid": "u", "fieldPath": path},
                "type": "Normal", "reason": reason, "message": "Container started", "count": count,
                "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:04:50Z"});
            let event = Event::of(&value).expect("an event");
            (value, event)
        };
        let now = "2026-01-01T00:05:00Z".parse().expect("a time");
        let shown =
            EventReport { events: vec![event("Started", 1, "spec.containers{a}"), event("BackOff", 7, "")], now };
        assert_eq!(
            shown.table(false, false).render(),
            "NAMESPACE   LAST SEEN         TYPE     REASON    OBJECT                            MESSAGE\n\
             shop        10s               Normal   Started   pod/web-edge spec.containers{a}   Container started\n\
             shop        10s (x7 over 5m)   Normal   BackOff   pod/web-edge                      Container started\n"
                .replace("LAST SEEN         TYPE", "LAST SEEN          TYPE")
                .replace("10s               Normal", "10s                Normal")
        );
        assert!(shown.events[0].1.is_of("u"));
    }

    #[test]
    fn the_end_of_line_of_a_message_is_not_shown() {
        let value = json!({"message": "Liveness probe failed: first\nsecond\n"});
        let event = Event::of(&value).expect("an event");
        let shown = EventReport { events: vec![(value.clone(), event)], now: Timestamp::UNIX_EPOCH };
        let table = shown.table(false, false).render();
        assert!(table.ends_with("Liveness probe failed: first?second\n"), "{table}");
        // Programs get the event unchanged.
        assert_eq!(serde_json::to_value(&shown).expect("JSON")["items"][0], value);
    }
}
