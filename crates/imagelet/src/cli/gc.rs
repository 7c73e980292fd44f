//! `imagelet gc`: removes images that nothing needs, or shows what would be removed and why the rest stays. The collector decides which
//! images are removed.

use agent::api::gc::{CollectPlan, CollectReport, CollectRequest, DiskChange, DiskUsage, MissingSpace};
use image_manager::gc::{PlannedImage, RemovedBecause};
use serde::Serialize;

use crate::app::App;
use crate::args::{Gc, GcAction};
use crate::exit::{Failure, Outcome};
use crate::output::{Report, Table, units};

/// A plan as displayed.
#[derive(Serialize)]
#[serde(transparent)]
struct Planned(CollectPlan);

impl Report for Planned {
    fn table(&self, wide: bool, whole: bool) -> Table {
        let titles = ["IMAGE", "IMAGE ID", "ON DISK", "FREED", "DECISION", "WHY", "+SINCE", "+LAST USED", "+USED BY"];
        let mut table = Table::with_wide(wide, &titles);
        for image in &self.0.images {
            let id = units::id(&image.id, whole);
            let frees = image.frees_bytes.map(units::bytes).unwrap_or_default();
            let size = units::bytes(image.size_bytes);
            let (name, decision, why) = (units::first_name(&image.names), image.decision.clone(), image.why.clone());
            let [since, used] = [image.first_detected, image.last_used].map(units::time);
            table.row([name, id, size, frees, decision, why, since, used, image.used_by.clone()]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.0.images.iter().filter(|image| image.is_removed()).map(|image| image.title().to_owned()).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.0.images.iter().filter(|image| image.is_removed()).map(|image| image.id.clone()).collect()
    }
}

/// The report of a collection.
#[derive(Serialize)]
#[serde(transparent)]
struct Done(CollectReport);

impl Report for Done {
    fn table(&self, _: bool, whole: bool) -> Table {
        let mut table = Table::new(&["REMOVED", "IMAGE ID", "FREED", "WHY"]);
        for image in &self.0.removed {
            let name = units::first_name(&image.names);
            let why = match image.because {
                RemovedBecause::Space => "its space was needed",
                RemovedBecause::Age => "unused for too long",
                RemovedBecause::Unused => "unused",
            };
            let why = match image.protected_until {
                None => why.to_owned(),
                Some(until) => format!("{why}, although it was protected until {until}"),
            };
            table.row([name, units::id(&image.id, whole), units::bytes(image.freed_bytes), why]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.0.removed.iter().flat_map(|image| image.names.clone()).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.0.removed.iter().map(|image| image.id.clone()).collect()
    }
}

pub(super) async fn run(app: &App, args: &Gc) -> Outcome {
    if let Some(action) = &args.action {
        return match action {
            GcAction::Explain(args) => super::gc_explain::run(app, args).await,
            GcAction::Containers(args) => super::gc_containers::run(app, args).await,
        };
    }
    if args.interrupted {
        return super::gc_interrupted::run(app, args.dry_run).await;
    }
    let request = CollectRequest {
        until_free: args.until_free,
        older_than_seconds: args.older_than.map(|age| age.as_secs()),
        all_unused: args.all_unused,
        min_age_seconds: args.min_age.map(|age| age.as_secs()).or(args.now.then_some(0)),
    };
    let collector = app.collector().await?;
    if args.dry_run {
        let planned = Planned(collector.plan(&request).await?);
        app.printer.report(&planned)?;
        let plan = &planned.0;
        summary(app, plan_lines(&request, plan))?;
        summary(app, with_young_images(app, &request, plan).await?.into_iter().collect())?;
        let left = app.images().await?.unfinished().await.map_err(|e| Failure::call("ask for unfinished pulls", &e))?;
        summary(app, super::gc_interrupted::lines(left, args.all_unused).into_iter().collect())?;
        // A plan that does not reach its goal is an answer and no failure.
        let missed = plan.missing.as_ref().map(|missing| unreached(&request, missing, plan.disk.as_ref()));
        return summary(
            app,
            missed.map(|missed| format!("The goal cannot be reached: {missed}.")).into_iter().collect(),
        );
    }
    let done = Done(collector.collect(&request).await?);
    if !(app.printer.is_table() && done.0.removed.is_empty()) {
        app.printer.report(&done)?;
    }
    let done = &done.0;
    summary(app, done_lines(&request, done))?;
    let mut failures: Vec<Failure> = done.problem.iter().map(|problem| Failure::failed(problem.clone())).collect();
    failures.extend(done.missing.as_ref().map(|missing| failure(&request, missing, done.disk.as_ref())));
    Failure::all(failures).map_or(Ok(()), Err)
}

/// Returns what `--now` would remove in addition to a plan that keeps images for their age.
async fn with_young_images(app: &App, request: &CollectRequest, plan: &CollectPlan) -> Outcome<Option<String>> {
    let is_too_young = |image: &PlannedImage| image.decision == "too-young";
    if request.min_age_seconds == Some(0) || !plan.images.iter().any(is_too_young) {
        return Ok(None);
    }
    let request = CollectRequest { min_age_seconds: Some(0), ..request.clone() };
    Ok(more_with_now(plan, &app.collector().await?.plan(&request).await?))
}

fn more_with_now(plan: &CollectPlan, now: &CollectPlan) -> Option<String> {
    let removed = |plan: &CollectPlan| plan.images.iter().filter(|image| image.is_removed()).count();
    let more = removed(now).checked_sub(removed(plan)).filter(|more| *more > 0)?;
    let frees = units::bytes(now.frees_bytes.saturating_sub(plan.frees_bytes));
    let images = if more == 1 { "image" } else { "images" };
    Some(format!("With --now, {more} more {images} would be removed, which frees {frees}."))
}

/// Prints lines below a table; other formats have the same information in their fields.
fn summary(app: &App, lines: Vec<String>) -> Outcome {
    if app.printer.is_table() { app.printer.lines(lines) } else { Ok(()) }
}

fn plan_lines(request: &CollectRequest, plan: &CollectPlan) -> Vec<String> {
    let to_remove = plan.images.iter().filter(|image| image.is_removed()).count();
    let mut lines = Vec::new();
    if to_remove == 0 && plan.wanted_bytes == 0 {
        lines.push(format!("Nothing to remove: {}.", idle(request, plan.disk.as_ref(), plan.high_threshold_percent)));
    } else {
        let sure =
            if plan.exact { "exact" } else { "an estimate: the runtime does not report which layers images share" };
        let wanted = Some(plan.wanted_bytes).filter(|wanted| *wanted != plan.frees_bytes);
        let wanted = wanted.map(|wanted| format!(" where {} are wanted", units::bytes(wanted))).unwrap_or_default();
        let (frees, images) = (units::bytes(plan.frees_bytes), count(to_remove));
        let line = format!("Removing {images} would free {frees}{wanted} ({sure}).");
        lines.push(if to_remove == 0 { "Nothing can be removed.".to_owned() } else { line });
    }
    lines.extend(plan.disk.as_ref().map(|span| disk_line(span, ["now", "then"])));
    lines
}

fn done_lines(request: &CollectRequest, done: &CollectReport) -> Vec<String> {
    let mut lines = Vec::new();
    if done.removed.is_empty() && done.wanted_bytes == 0 {
        lines.push(format!("Nothing was removed: {}.", idle(request, done.disk.as_ref(), done.high_threshold_percent)));
    } else {
        let sure = if done.exact { "exact" } else { "as the file system shows it" };
        let (freed, images) = (units::bytes(done.freed_bytes), count(done.removed.len()));
        let none = "Nothing was removed.".to_owned();
        lines.push(if done.removed.is_empty() { none } else { format!("Removing {images} freed {freed} ({sure}).") });
    }
    lines.extend(done.disk.as_ref().map(|span| disk_line(span, ["before", "now"])));
    lines
}

/// Returns why nothing has to be removed.
fn idle(request: &CollectRequest, disk: Option<&DiskChange>, high: i32) -> String {
    if let Some(wanted) = request.until_free {
        return format!("at least {} are free", units::bytes(wanted));
    }
    if request.all_unused || request.older_than_seconds.is_some() {
        return "every image is in use, kept or too young".to_owned();
    }
    match disk {
        Some(DiskChange { before, .. }) if high < 100 => {
            let inodes = before.inodes_used_percent;
            let inodes =
                if inodes > before.used_percent { format!(" ({inodes}% of its inodes)") } else { String::new() };
            format!("{}% of {} is used{inodes}, and collection begins at {high}%", before.used_percent, before.path)
        }
        _ => "no image is unused for long enough".to_owned(),
    }
}

fn count(images: usize) -> String {
    format!("{images} image{}", if images == 1 { "" } else { "s" })
}

fn disk_line(span: &DiskChange, [first, then]: [&str; 2]) -> String {
    let DiskChange { before, after } = span;
    // Report inodes if they are scarcer than bytes.
    let scarce = before.inodes_used_percent.max(after.inodes_used_percent) > before.used_percent;
    let free = |disk: &DiskUsage| {
        let inodes = if scarce { format!(", {}% of the inodes", disk.inodes_used_percent) } else { String::new() };
        format!("{} free ({}% used{inodes})", units::bytes(disk.available_bytes), disk.used_percent)
    };
    let capacity = units::bytes(before.capacity_bytes);
    format!("{} of {capacity}: {} {first}, {} {then}.", before.path, free(before), free(after))
}

/// Returns the failure of a collection that did not reach its goal.
fn failure(request: &CollectRequest, missing: &MissingSpace, disk: Option<&DiskChange>) -> Failure {
    let missed = unreached(request, missing, disk);
    Failure::failed(format!("the goal is not reached: {missed}; `imagelet gc --dry-run` has the reason for each image"))
}

/// Returns by how much a goal is missed, and the images that are kept.
fn unreached(request: &CollectRequest, missing: &MissingSpace, disk: Option<&DiskChange>) -> String {
    let lacks = units::bytes(missing.bytes);
    let path = disk.map_or("the image file system", |span| span.after.path.as_str());
    let goal = match request.until_free {
        Some(wanted) => format!("{path} needs {lacks} more to have {} free", units::bytes(wanted)),
        None => format!("{path} needs {lacks} more to be below its low threshold"),
    };
    let kept: Vec<String> = missing
        .kept
        .iter()
        .map(|kept| {
            let (images, size) = (count(kept.images), units::bytes(kept.size_bytes));
            let why = match kept.decision.as_str() {
                "in-use" => "in use",
                "rule" => "kept by a rule",
                "protected" => "pulled before their use and protected",
                "too-young" => "too young (--now removes them as well)",
                "used-within" => "used recently",
                "cannot-be-removed" => "that could not be removed",
                "not-needed" => "without space of their own",
                other => other,
            };
            format!("{images} ({size}) {why}")
        })
        .collect();
    let kept = if kept.is_empty() { "no image is left".to_owned() } else { format!("kept: {}", kept.join(", ")) };
    format!("{goal}; {kept}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::api::gc::KeptImages;

    fn disk(available_bytes: u64) -> DiskUsage {
        let used_percent = 100 - available_bytes / 1_000_000_000;
        let (path, capacity_bytes) = ("/data".to_owned(), 100_000_000_000);
        DiskUsage { path, capacity_bytes, available_bytes, used_percent, ..DiskUsage::default() }
    }

    #[test]
    fn a_plan_for_people() {
        let image = |name: &str, decision: &str, why: &str, frees_bytes: Option<u64>| PlannedImage {
            id: oci::Digest::sha256(name.as_bytes()).to_string(),
            names: vec![name.to_owned()],
            size_bytes: 5_000_000_000,
            decision: decision.to_owned(),
            why: why.to_owned(),
            frees_bytes,
            ..PlannedImage::default()
        };
        let plan = CollectPlan {
            wanted_bytes: 8_000_000_000,
            frees_bytes: 4_500_000_000,
            exact: true,
            high_threshold_percent: 85,
            disk: Some(DiskChange { before: disk(12_000_000_000), after: disk(16_500_000_000) }),
            images: vec![
                image("r.example/old:1", "remove", "its space is needed", Some(4_500_000_000)),
                image("r.example/web:2", "in-use", "in use by shop/web/app", None),
            ],
            missing: None,
        };
        let (old, web) = (oci::Digest::sha256(b"r.example/old:1"), oci::Digest::sha256(b"r.example/web:2"));
        let (old, web) = (old.short(), web.short());
        assert_eq!(
            Planned(plan.clone()).table(false, false).render(),
            format!(
                "IMAGE             IMAGE ID       ON DISK   FREED   DECISION   WHY\n\
                 r.example/old:1   {old}   5GB       4.5GB   remove     its space is needed\n\
                 r.example/web:2   {web}   5GB       -       in-use     in use by shop/web/app\n"
            )
        );
        assert_eq!(
            plan_lines(&CollectRequest::default(), &plan),
            [
                "Removing 1 image would free 4.5GB where 8GB are wanted (exact).",
                "/data of 100GB: 12GB free (88% used) now, 16.5GB free (84% used) then.",
            ]
        );
        let nothing = CollectPlan { wanted_bytes: 0, frees_bytes: 0, images: Vec::new(), ..plan.clone() };
        assert_eq!(
            plan_lines(&CollectRequest::default(), &nothing)[0],
            "Nothing to remove: 88% of /data is used, and collection begins at 85%."
        );
        assert_eq!(Planned(plan).names(), ["r.example/old:1"]);
    }

    #[test]
    fn a_goal_that_is_missed_says_what_stays() {
        let reason =
            |decision: &str, images| KeptImages { decision: decision.to_owned(), images, size_bytes: 2_000_000_000 };
        let missing = MissingSpace { bytes: 3_500_000_000, kept: vec![reason("in-use", 2), reason("pinned", 1)] };
        let span = DiskChange { before: disk(12_000_000_000), after: disk(16_500_000_000) };
        let request = CollectRequest { until_free: Some(20_000_000_000), ..CollectRequest::default() };
        assert_eq!(
            failure(&request, &missing, Some(&span)).lines(),
            [
                "the goal is not reached: /data needs 3.5GB more to have 20GB free; kept: 2 images (2GB) in use, 1 image (2GB) \
              pinned; `imagelet gc --dry-run` has the reason for each image"
            ]
        );
        let alone = MissingSpace { bytes: 1, kept: Vec::new() };
        assert_eq!(
            unreached(&CollectRequest::default(), &alone, None),
            "the image file system needs 1B more to be below its low threshold; no image is left"
        );
    }
}
