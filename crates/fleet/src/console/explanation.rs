//! [`explain`]: why a node has an image, or not, step by step: which sets want it there, whether its tag is resolved, whether the node may
//! start, and what the node reported. Ends with one sentence and the next step. Pure. The binary renders it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use oci::Reference;
use serde::Serialize;

use super::requests::NodeFacts;
use super::selection;
use crate::api::{
    Fleet, ImagePhase, ImageReport, ImageSet, ImageSetStatus, NodeCursor, NodeImages, NodeImagesStatus, Resolution,
    SetReport,
};
use crate::release::{Rank, Release};

/// A quiet node reports every 30 minutes. Without a report for this many seconds, its agent does not run or is cut off.
const SILENT_SECONDS: i64 = 3600;

/// The facts of an explanation.
#[derive(Clone, Copy, Debug)]
pub struct WhyFacts<'a> {
    /// The node.
    pub node: &'a NodeFacts,
    /// Image as typed.
    pub image: &'a str,
    /// All sets.
    pub sets: &'a [ImageSet],
    /// Settings of the whole fleet.
    pub fleet: Option<&'a Fleet>,
    /// Report of the node.
    pub report: Report<'a>,
    /// The current time.
    pub now: Timestamp,
    /// Formats a number of seconds.
    pub human: fn(i64) -> String,
}

/// The report of a node, as far as the user may read it.
#[derive(Clone, Copy, Debug)]
pub enum Report<'a> {
    /// The user may not read it.
    Forbidden,
    /// The node has never reported.
    Missing,
    /// The report.
    Read(&'a NodeImages),
}

/// An explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Name of the node.
    pub node: String,
    /// Image as typed.
    pub image: String,
    /// Sets that name the image, each with its steps.
    pub sets: Vec<SetExplanation>,
    /// Steps that concern the node.
    pub steps: Vec<Step>,
    /// The answer in one sentence.
    pub answer: String,
    /// The next step, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A set that names the image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetExplanation {
    /// Name of the set.
    pub set: String,
    /// The steps on the way to the image, in their order.
    pub steps: Vec<Step>,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// True if the step does not keep the image from the node.
    pub ok: bool,
    /// Name of the step: `selected`, `resolved`, `released`, `reported`.
    pub step: &'static str,
    /// Finding of the step.
    pub message: String,
}

/// How a set leaves the image, the most final first: of several sets, the first one answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Ready { reported: String },
    Pulling { progress: String },
    Failed { reason: String, message: String, retry: String },
    Gone,
    NoReport(NoReport),
    Starting,
    Held { why: String, next: String },
    Unresolved { problem: String },
    Unhandled,
    NotSelected { problem: String },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NoReport {
    Forbidden,
    Missing,
    Silent(String),
}

/// Explains why the node has the image or not.
#[must_use]
pub fn explain(facts: &WhyFacts<'_>) -> Explanation {
    let named = facts.sets.iter().filter_map(|set| Some((set, name_in(set, facts.image)?)));
    let mut explained: Vec<(End, SetExplanation)> = named.map(|(set, name)| explain_set(facts, set, name)).collect();
    explained.sort_by(|one, other| one.0.cmp(&other.0));
    let (answer, next) = match explained.first() {
        Some((end, set)) => answer(facts, end, &set.set),
        None => unnamed(facts),
    };
    Explanation {
        node: facts.node.name.clone(),
        image: facts.image.to_owned(),
        sets: explained.into_iter().map(|(_, set)| set).collect(),
        steps: vec![reported(facts)],
        answer,
        next,
    }
}

/// Returns the name under which the set has the image.
fn name_in<'s>(set: &'s ImageSet, image: &str) -> Option<&'s str> {
    let normal = |name: &str| Reference::parse(name).ok().map(|reference| reference.with_default_tag().to_string());
    let wanted = normal(image);
    let mut names = set.spec.images.iter().map(|image| image.name.as_str());
    names.find(|name| *name == image || wanted.is_some() && normal(name) == wanted)
}

fn explain_set(facts: &WhyFacts<'_>, set: &ImageSet, image: &str) -> (End, SetExplanation) {
    let mut steps = Vec::new();
    let end = walk(facts, set, image, &mut steps);
    (end, SetExplanation { set: name_of(set).to_owned(), steps })
}

fn name_of(set: &ImageSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

fn walk(facts: &WhyFacts<'_>, set: &ImageSet, image: &str, steps: &mut Vec<Step>) -> End {
    let mut push = |ok: bool, step: &'static str, message: String| steps.push(Step { ok, step, message });
    match selection::reason(&set.spec, &facts.node.name, &facts.node.labels) {
        Ok(reason) => push(true, "selected", reason),
        Err(problem) => {
            push(false, "selected", problem.clone());
            return End::NotSelected { problem };
        }
    }
    let Some(status) = set.status.as_ref().filter(|status| status.observed_generation == set.metadata.generation)
    else {
        let message = "the controller has not handled this generation of the set".to_owned();
        push(false, "resolved", message);
        return End::Unhandled;
    };
    let (resolved, message) = resolution(set, status, image);
    push(resolved.is_none(), "resolved", message);
    let (held, message) = release(facts, set, status);
    push(held.is_none(), "released", message);
    let row = report_of(facts).and_then(|report| row_in(report, set, image));
    if let Some(row) = row {
        let (ok, message) = row_text(facts, row);
        push(ok, "image", message);
    }
    end(facts, row, resolved, held)
}

/// Returns the end of a set, from its row in the report and what keeps the node from starting.
fn end(
    facts: &WhyFacts<'_>,
    row: Option<&ImageReport>,
    unresolved: Option<String>,
    held: Option<(String, String)>,
) -> End {
    match row.map(|row| (row.phase, row)) {
        Some((ImagePhase::Ready, _)) => End::Ready { reported: report_age(facts) },
        Some((ImagePhase::Pulling, row)) => End::Pulling { progress: progress(row) },
        Some((ImagePhase::Gone, _)) => End::Gone,
        _ if unresolved.is_some() => End::Unresolved { problem: unresolved.unwrap_or_default() },
        Some((ImagePhase::Failed, row)) => End::Failed {
            reason: row.reason.clone().unwrap_or_else(|| "Failed".to_owned()),
            message: row.message.clone().unwrap_or_default(),
            retry: retry(facts, row),
        },
        _ => match (held, facts.report) {
            (Some((why, next)), _) => End::Held { why, next },
            (None, Report::Forbidden) => End::NoReport(NoReport::Forbidden),
            (None, Report::Missing) => End::NoReport(NoReport::Missing),
            (None, Report::Read(_)) => match silence(facts) {
                Some(time) => End::NoReport(NoReport::Silent(time)),
                None => End::Starting,
            },
        },
    }
}

/// Returns the problem of the resolution, if there is one, and the text of the step.
fn resolution(set: &ImageSet, status: &ImageSetStatus, image: &str) -> (Option<String>, String) {
    let resolved = status.resolved.iter().find(|resolved| resolved.name == image);
    match resolved.map(|resolved| (resolved.digest.as_deref(), resolved)) {
        Some((Some(digest), _)) => (None, digest.to_owned()),
        _ if set.spec.resolution == Resolution::OnNode => (None, "each node resolves the tag".to_owned()),
        Some((None, resolved)) => {
            let parts = [resolved.reason.as_deref(), resolved.message.as_deref()];
            let problem = parts.into_iter().flatten().collect::<Vec<_>>().join(": ");
            let problem = if problem.is_empty() { "no answer from the registry yet".to_owned() } else { problem };
            (Some(problem.clone()), problem)
        }
        None => {
            let problem = "the tags of this generation are being resolved".to_owned();
            (Some(problem.clone()), problem)
        }
    }
}

/// Returns what keeps the node from starting and the next step, if anything does, and the text of the step.
fn release(facts: &WhyFacts<'_>, set: &ImageSet, status: &ImageSetStatus) -> (Option<(String, String)>, String) {
    let name = name_of(set);
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let generation = status.rollout_generation.unwrap_or_default();
    let rank = Rank::of(uid, generation, &facts.node.name);
    let release = Release::of(status);
    let cursor =
        facts.node.created.map(|created| NodeCursor { creation_time: Time(created), name: facts.node.name.clone() });
    if cursor.as_ref().is_some_and(|cursor| release.covers(rank, cursor)) {
        let threshold = release.threshold.map(|threshold| threshold.to_string()).unwrap_or_default();
        return (None, format!("rank {rank} is not above the threshold {threshold}"));
    }
    let position = match release.threshold {
        None => format!("rank {rank}, and no node is released"),
        Some(threshold) if rank > threshold => format!("rank {rank} is above the threshold {threshold}"),
        Some(_) => format!("rank {rank}, but the node joined after the last count of the controller"),
    };
    let (why, next) = held(facts, set, status, name);
    let message = format!("{position}: {why}");
    (Some((why, next)), message)
}

/// Returns the reason for which no further node starts, and the next step.
fn held(facts: &WhyFacts<'_>, set: &ImageSet, status: &ImageSetStatus, name: &str) -> (String, String) {
    let progressing = status.conditions.iter().find(|condition| condition.type_ == "Progressing");
    let reason = progressing.map(|condition| condition.reason.as_str()).unwrap_or_default();
    let nodes = status.nodes.unwrap_or_default();
    if reason == "TooManyFailures" {
        let why = format!("{} failed or lost, more than maxFailed permits", nodes.failed + nodes.lost);
        return (why, format!("`imagelet fleet status {name}` lists the failures by cause"));
    }
    if set.spec.rollout.paused {
        return ("the set is paused".to_owned(), format!("`imagelet fleet resume {name}` lets further nodes start"));
    }
    if facts.fleet.is_some_and(|fleet| fleet.spec.paused) {
        return ("the fleet is paused".to_owned(), "`imagelet fleet resume --all` lets further nodes start".to_owned());
    }
    let limit = match &set.spec.rollout.max_concurrent {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    let why = format!("{} nodes are in progress and {} wait, maxConcurrent is {limit}", nodes.pulling, nodes.waiting);
    (why, format!("`imagelet fleet watch {name}` follows the rollout"))
}

fn report_of<'a>(facts: &WhyFacts<'a>) -> Option<&'a NodeImagesStatus> {
    match facts.report {
        Report::Read(report) => report.status.as_ref(),
        Report::Forbidden | Report::Missing => None,
    }
}

/// Returns the row of the image, if the report is about this set.
fn row_in<'a>(report: &'a NodeImagesStatus, set: &ImageSet, image: &str) -> Option<&'a ImageReport> {
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let generation = set.status.as_ref().and_then(|status| status.rollout_generation);
    let is_current = |set: &SetReport| set.uid == uid && Some(set.generation) == generation;
    report.sets.iter().find(|set| is_current(set))?;
    report.images.iter().find(|row| row.set == name_of(set) && row.name == image)
}

/// Returns true if the row does not keep the image from the node, and its text.
fn row_text(facts: &WhyFacts<'_>, row: &ImageReport) -> (bool, String) {
    let pinned = if row.pinned { "pinned" } else { "not pinned" };
    let detail = match row.phase {
        ImagePhase::Ready => format!("Ready, {pinned}"),
        ImagePhase::Pulling => format!("Pulling, {}, attempt {}, {pinned}", progress(row), row.attempts),
        ImagePhase::Waiting => format!("Waiting, {pinned}"),
        ImagePhase::Gone => format!("Gone: the image was present and disappeared, {pinned}"),
        ImagePhase::Failed => {
            let reason = row.reason.as_deref().unwrap_or("no reason");
            let message = row.message.as_deref().unwrap_or("no message");
            format!("Failed, attempt {}: {reason}: {message}; {}, {pinned}", row.attempts, retry(facts, row))
        }
    };
    (!matches!(row.phase, ImagePhase::Failed | ImagePhase::Gone), detail)
}

fn progress(row: &ImageReport) -> String {
    match row.bytes.total {
        0 => "size not known yet".to_owned(),
        total => format!("{} of {}", base::units::bytes(row.bytes.done), base::units::bytes(total)),
    }
}

fn retry(facts: &WhyFacts<'_>, row: &ImageReport) -> String {
    match row.retry_at.as_ref().map(|time| time.0.as_second() - facts.now.as_second()) {
        Some(seconds) if seconds > 0 => format!("the next attempt is in {}", (facts.human)(seconds)),
        Some(_) => "the next attempt is due".to_owned(),
        None => "the node tries again".to_owned(),
    }
}

/// Returns the seconds since the last report.
fn report_seconds(facts: &WhyFacts<'_>) -> Option<i64> {
    let time = report_of(facts)?.report_time.as_ref()?;
    Some((facts.now.as_second() - time.0.as_second()).max(0))
}

fn report_age(facts: &WhyFacts<'_>) -> String {
    report_seconds(facts).map_or_else(|| "at an unknown time".to_owned(), |age| format!("{} ago", (facts.human)(age)))
}

/// Returns the time for which the node has been silent, if that is too long.
fn silence(facts: &WhyFacts<'_>) -> Option<String> {
    report_seconds(facts).filter(|age| *age > SILENT_SECONDS).map(facts.human)
}

fn reported(facts: &WhyFacts<'_>) -> Step {
    let (ok, message) = match facts.report {
        Report::Forbidden => (false, "you may not read NodeImages".to_owned()),
        Report::Missing => (false, "this node has never reported".to_owned()),
        Report::Read(report) => {
            let version = report.status.as_ref().and_then(|status| status.agent_version.as_deref());
            let version = version.map(|version| format!(", by agent {version}")).unwrap_or_default();
            (silence(facts).is_none(), format!("{}{version}", report_age(facts)))
        }
    };
    Step { ok, step: "reported", message }
}

/// Returns the answer and the next step for the set that decides.
fn answer(facts: &WhyFacts<'_>, end: &End, set: &str) -> (String, Option<String>) {
    let (node, image) = (&facts.node.name, facts.image);
    let stale = silence(facts).map(|time| format!(" (that was {time} ago; the node is silent since)"));
    let stale = stale.unwrap_or_default();
    match end {
        End::Ready { reported } => (format!("{node} has {image}: it reported so {reported}."), None),
        End::Pulling { progress } => (
            format!("{node} is pulling {image}: {progress}{stale}."),
            Some(format!("`imagelet fleet watch {set}` follows the rollout")),
        ),
        End::Failed { reason, message, retry } => (
            format!("{node} cannot pull {image}: {reason}: {message}; {retry}{stale}."),
            Some(advice(reason).to_owned()),
        ),
        End::Gone => (
            format!("{image} was on {node} and disappeared; the node pulls it again{stale}."),
            Some(
                "find out what removes images there: a kubelet's collection does not know pins of imagelet".to_owned(),
            ),
        ),
        End::NoReport(NoReport::Forbidden) => (
            format!("{node} may start, but you may not read its report."),
            Some(format!("ask for the right to get nodeimages, or `kubectl get imageset {set}`")),
        ),
        End::NoReport(NoReport::Missing) => (
            format!("{node} may start, but has never reported: no agent that follows ImageSets runs there."),
            Some(format!("on {node}: `imagelet doctor`, and the log of the agent")),
        ),
        End::NoReport(NoReport::Silent(time)) => (
            format!("{node} may start, but has not reported for {time}."),
            Some(format!("on {node}: is the agent running, and does it reach the API server?")),
        ),
        End::Starting => (
            format!("{node} may start; its next report will have {image}."),
            Some(format!("`imagelet fleet watch {set}` follows the rollout")),
        ),
        End::Held { why, next } => (format!("{node} waits for its turn in {set}: {why}."), Some(next.clone())),
        End::Unresolved { problem } => (
            format!("{image} has no digest, so no node pulls it: {problem}."),
            Some("correct the name, or the pullSecrets of the set; the controller tries again by itself".to_owned()),
        ),
        End::Unhandled => (
            format!("the controller has not handled the last change of {set}."),
            Some("`kubectl -n imagelet-fleet get pods,leases`: does a controller run?".to_owned()),
        ),
        End::NotSelected { problem } => (
            format!("{set} has {image}, but does not select {node}: {problem}."),
            Some(format!("label the node, or change nodeSelector of {set}")),
        ),
    }
}

/// Returns the next step for the reason of a failed pull.
fn advice(reason: &str) -> &'static str {
    match reason {
        "ImageNotFound" => "correct the name or push the image; the node tries again by itself",
        "Unauthorized" => "give the set pullSecrets that the registry accepts",
        "SecretNotFound" | "SecretUnreadable" => "create the secret in the namespace of the fleet",
        "InsufficientSpace" => "free space on the node, or lower minFree of the set",
        "RateLimited" => "wait, or use a mirror or credentials with a higher limit",
        "RegistryUnavailable" | "PullStalled" => "check the way from the node to the registry: `imagelet doctor` there",
        "SignatureInvalid" => "sign the image, or correct the signature policy of the node",
        _ => "the log of the agent on the node has the details",
    }
}

/// Returns the answer for an image that no set names.
fn unnamed(facts: &WhyFacts<'_>) -> (String, Option<String>) {
    let names = || facts.sets.iter().flat_map(|set| &set.spec.images).map(|image| image.name.as_str());
    let next = match base::nearest(facts.image, names()) {
        Some(name) => format!("did you mean {name}?"),
        None if facts.sets.is_empty() => "there are no sets: `imagelet fleet apply -f FILE` makes one".to_owned(),
        None => "`imagelet fleet status` lists the sets".to_owned(),
    };
    (format!("no set names {}.", facts.image), Some(next))
}

#[cfg(test)]
#[path = "explanation_tests.rs"]
mod tests;
