//! [`Health`]: the state of the node in one line, such as "3 of 5 pods not ready · 1 pull retrying · disk OK". Pure: a function of a
//! [`Report`] and its troubles. Called by [`super::view`].

use super::attention::{NEARLY_FULL, Retry, Subject, Trouble};
use super::report::Report;
use crate::pods::columns::columns;

/// How serious an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// As it should be.
    Good,
    /// Something is not as it should be, and may become so by itself.
    Warning,
    /// Something fails.
    Bad,
}

/// A part of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HealthItem {
    pub(super) level: Level,
    pub(super) text: String,
    /// The section that says more.
    pub(super) link: &'static str,
}

/// The line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Health(pub(super) Vec<HealthItem>);

impl Health {
    pub(super) fn of(report: &Report, troubles: &[Trouble]) -> Self {
        let mut items = Vec::new();
        items.extend(pods(report, troubles));
        items.extend(manifests(troubles));
        items.extend(images(troubles));
        items.push(disk(report));
        if troubles.iter().any(|trouble| trouble.subject == Subject::Service) {
            items.push(item(Level::Bad, "image service fails".to_owned(), "#attention"));
        }
        Self(items)
    }

    /// Returns the line as text.
    pub(super) fn line(&self) -> String {
        self.0.iter().map(|item| item.text.as_str()).collect::<Vec<_>>().join(" · ")
    }

    /// Returns the level of the worst item.
    pub(super) fn level(&self) -> Level {
        self.0.iter().map(|item| item.level).max().unwrap_or(Level::Good)
    }
}

fn item(level: Level, text: String, link: &'static str) -> HealthItem {
    HealthItem { level, text, link }
}

/// Returns `1 pod`, `2 pods`.
fn plural(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

fn pods(report: &Report, troubles: &[Trouble]) -> Option<HealthItem> {
    let of = report.pods.as_ref()?;
    let wanted = of.pods.iter().filter(|pod| pod.status.phase != "Succeeded");
    let all = wanted.clone().count();
    let ready = wanted
        .filter(|pod| {
            let (ready, all) = columns(pod).ready;
            ready == all && !pod.is_over()
        })
        .count();
    if all == 0 {
        return Some(item(Level::Good, "no pods".to_owned(), "#pods"));
    }
    if ready == all {
        return Some(item(Level::Good, format!("{} ready", plural(all, "pod")), "#pods"));
    }
    let fails = |trouble: &Trouble| match &trouble.subject {
        Subject::Pod(_) => true,
        Subject::Image(_, pods) => !pods.is_empty(),
        _ => false,
    };
    let text = format!("{} of {} not ready", all - ready, plural(all, "pod"));
    let fails = troubles.iter().any(fails);
    Some(if fails { item(Level::Bad, text, "#attention") } else { item(Level::Warning, text, "#pods") })
}

fn manifests(troubles: &[Trouble]) -> Option<HealthItem> {
    let refused = troubles.iter().filter(|trouble| matches!(trouble.subject, Subject::Manifest(_))).count();
    (refused > 0).then(|| item(Level::Bad, format!("{} refused", plural(refused, "manifest")), "#attention"))
}

fn images(troubles: &[Trouble]) -> Option<HealthItem> {
    let failing: Vec<&Trouble> = troubles
        .iter()
        .filter(|trouble| matches!(trouble.subject, Subject::Image(..) | Subject::SetImage(..)))
        .collect();
    // A client decides when it pulls again; everything else is retried.
    let what = if failing.iter().any(|trouble| trouble.retry == Retry::OnRequest) { "failed" } else { "retrying" };
    let text = format!("{} {what}", plural(failing.len(), "pull"));
    (!failing.is_empty()).then(|| item(Level::Warning, text, "#attention"))
}

fn disk(report: &Report) -> HealthItem {
    let Some(disk) = &report.inventory.disk else {
        return item(Level::Warning, "disk not measured".to_owned(), "#disk");
    };
    let high = u64::try_from(report.inventory.thresholds.0).unwrap_or_default();
    let used = disk.used_percent.max(disk.inodes_used_percent);
    match used {
        _ if used >= NEARLY_FULL => item(Level::Bad, format!("disk {used}% full"), "#attention"),
        _ if used >= high => item(Level::Warning, format!("disk {used}% full"), "#attention"),
        _ => item(Level::Good, "disk OK".to_owned(), "#disk"),
    }
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
