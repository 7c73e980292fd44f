//! The span around a request: its fields, and that it is made only if there is a subscriber.

use base::lock::Mutex;
use std::collections::BTreeMap;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;

/// Writes down the fields of spans of one name.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<BTreeMap<&'static str, String>>>>);

impl Listener {
    fn with<T>(&self, read: impl FnOnce(&mut Vec<BTreeMap<&'static str, String>>) -> T) -> T {
        read(&mut self.0.lock())
    }
}

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.name() == "EnsureImageExists" && *metadata.level() == Level::DEBUG
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.with(|spans| {
            spans.push(BTreeMap::new());
            span.record(&mut Fields(spans.last_mut().expect("just pushed")));
            Id::from_u64(spans.len() as u64)
        })
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let index = usize::try_from(span.into_u64() - 1).expect("a small number");
        self.with(|spans| values.record(&mut Fields(&mut spans[index])));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_span_tells_pod_image_policy_and_outcome() {
    let listener = Listener::default();
    let rig = Rig::new(SERIAL);
    // A test in another thread that registers the span at this moment may cache that there is no subscriber (tracing-core
    // reads the list of subscribers first, and only then adds the span to those that a later subscriber asks): set it again.
    let mut tries = 0;
    let guard = loop {
        let guard = tracing::subscriber::set_default(listener.clone());
        drop(rig.ensure(request("present_image", PullPolicy::IfNotPresent)).await);
        if !listener.with(std::mem::take).is_empty() {
            break guard;
        }
        tries += 1;
        assert!(tries < 100, "no span is made for a subscriber");
    };
    for (image, policy) in [
        ("present_image", PullPolicy::IfNotPresent),
        ("missing_image", PullPolicy::Always),
        ("absent_image", PullPolicy::Never),
    ] {
        drop(rig.ensure(request(image, policy)).await);
    }
    drop(guard);
    let spans = listener.with(std::mem::take);
    let told: Vec<String> =
        spans.iter().map(|s| format!("{} {} {} {}", s["pod"], s["image"], s["policy"], s["outcome"])).collect();
    assert_eq!(
        told,
        [
            "default/pod present_image IfNotPresent present",
            "default/pod missing_image Always pulled",
            "default/pod absent_image Never ErrImageNeverPull",
        ]
    );
}
