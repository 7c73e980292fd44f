//! `imagelet fleet watch`: the picture of a rollout whenever it changes, until it ends. Watches objects, and asks for nothing at intervals.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use cluster::watch::{Selected, Selection, follow};
use fleet::api::{Fleet, GROUP_VERSION, ImageSet, NodeImages, decode};
use fleet::console::{FleetRequests, RolloutPicture, Verdict, verdict};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::connection;
use super::picture;
use crate::app::App;
use crate::args::FleetWatch;
use crate::exit::{Failure, Outcome};
use crate::output::{Canvas, units};

/// The watched objects.
struct Watched {
    sets: watch::Receiver<Selected>,
    fleets: watch::Receiver<Selected>,
    /// `None` if the user may not read the reports.
    reports: Option<watch::Receiver<Selected>>,
}

pub(super) async fn run(app: &App, args: &FleetWatch) -> Outcome {
    let requests = connection::requests(app).await?;
    let may_list = check(&requests, args.set.as_deref()).await?;
    let (sets, fleets, reports) = (
        watch::Sender::new(Selected::default()),
        watch::Sender::new(Selected::default()),
        watch::Sender::new(Selected::default()),
    );
    // The reports are for the picture of one set.
    let with_reports = may_list && args.set.is_some();
    let watched = Watched {
        sets: sets.subscribe(),
        fleets: fleets.subscribe(),
        reports: with_reports.then(|| reports.subscribe()),
    };
    let (client, stop) = (requests.client(), CancellationToken::new());
    let (all_sets, all_fleets) =
        (Selection::all_of(GROUP_VERSION, "imagesets"), Selection::all_of(GROUP_VERSION, "fleets"));
    let all_reports = Selection::all_of(GROUP_VERSION, "nodeimages");
    let following = async {
        tokio::join!(follow(client, &all_sets, &sets, &stop), follow(client, &all_fleets, &fleets, &stop), async {
            if with_reports {
                follow(client, &all_reports, &reports, &stop).await;
            }
        });
        std::future::pending::<Outcome>().await
    };
    let time = async {
        match args.timeout {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        outcome = show(app, args.set.as_deref(), watched) => outcome,
        outcome = following => outcome,
        () = time => Err(Failure::failed(format!("the rollout has not ended within {}", units::seconds(args.timeout.unwrap_or_default())))),
    }
}

/// Reads once what is watched, so that an error is reported at once. Returns true if the user may list reports.
async fn check(requests: &FleetRequests, set: Option<&str>) -> Outcome<bool> {
    let failed = |error| connection::failed(&error);
    match set {
        None => requests.sets().await.map(|_| false).map_err(failed),
        Some(name) => match requests.set(name).await.map_err(failed)? {
            None => Err(connection::no_set(requests, name).await),
            Some(_) => Ok(requests.reports().await.map_err(failed)?.is_some()),
        },
    }
}

/// Shows each change until the end of the rollout.
async fn show(app: &App, name: Option<&str>, mut watched: Watched) -> Outcome {
    let mut output =
        Output { is_terminal: std::io::stdout().is_terminal(), canvas: Canvas::default(), last: BTreeMap::new() };
    loop {
        if watched.sets.borrow_and_update().ready && watched.fleets.borrow_and_update().ready {
            let mut sets: Vec<ImageSet> = objects(&watched.sets);
            sets.retain(|set| name.is_none_or(|name| set.metadata.name.as_deref() == Some(name)));
            sets.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
            let fleet = objects::<Fleet>(&watched.fleets).into_iter().next();
            let reports = watched.reports.as_mut().map(|reports| {
                reports.mark_unchanged();
                objects::<NodeImages>(reports)
            });
            let pictures: Vec<RolloutPicture> =
                sets.iter().map(|set| RolloutPicture::of(set, fleet.as_ref(), reports.as_deref())).collect();
            output.show(app, &pictures, name.is_some())?;
            if let Some(end) = end(&sets, name) {
                return end;
            }
        }
        let reports = async {
            match &mut watched.reports {
                Some(reports) => reports.changed().await,
                None => std::future::pending().await,
            }
        };
        let changed = tokio::select! {
            changed = watched.sets.changed() => changed,
            changed = watched.fleets.changed() => changed,
            changed = reports => changed,
        };
        if changed.is_err() {
            return Err(Failure::failed("the watch ended"));
        }
    }
}

/// Returns the watched objects that can be read.
fn objects<T: DeserializeOwned>(selected: &watch::Receiver<Selected>) -> Vec<T> {
    selected.borrow().objects.values().filter_map(|value| decode(value).ok()).collect()
}

/// Returns the end of the command, if the rollouts have ended.
fn end(sets: &[ImageSet], name: Option<&str>) -> Option<Outcome> {
    if let (Some(name), []) = (name, sets) {
        return Some(Err(Failure::failed(format!("imageset/{name} was deleted"))));
    }
    let verdicts: Vec<(&str, Verdict)> =
        sets.iter().map(|set| (set.metadata.name.as_deref().unwrap_or_default(), verdict(set))).collect();
    if verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Open) {
        return None;
    }
    let failures = verdicts.into_iter().filter_map(|(set, verdict)| match verdict {
        Verdict::Failed(reason) => Some(Failure::failed(format!(
            "the rollout of {set} failed: {reason} (`imagelet fleet status {set}` lists the causes)"
        ))),
        Verdict::Ready | Verdict::Open => None,
    });
    Some(Failure::all(failures.collect()).map_or(Ok(()), Err))
}

/// Where pictures are shown.
struct Output {
    is_terminal: bool,
    canvas: Canvas,
    /// The last line of each set.
    last: BTreeMap<String, String>,
}

impl Output {
    /// Replaces the picture on a terminal; otherwise writes a line for each set that changed.
    fn show(&mut self, app: &App, pictures: &[RolloutPicture], is_single: bool) -> Outcome {
        let now = Timestamp::now();
        if self.is_terminal {
            let lines: Vec<String> = match pictures {
                [picture] if is_single => picture::render(picture, now),
                pictures => pictures.iter().map(picture::line).collect(),
            };
            return app.printer.repaint(&mut self.canvas, lines);
        }
        let mut lines = Vec::new();
        for picture in pictures {
            let line = picture::line(picture);
            if self.last.get(&picture.name) != Some(&line) {
                lines.push(format!("{} {line}", units::time(Some(now))));
                self.last.insert(picture.name.clone(), line);
            }
        }
        app.printer.lines(lines)
    }
}
