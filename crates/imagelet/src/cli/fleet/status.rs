//! `imagelet fleet status`: a table of all sets, or the picture of one rollout.

use fleet::api::ImageSet;
use fleet::console::RolloutPicture;
use jiff::Timestamp;
use serde::Serialize;

use super::connection;
use super::picture;
use crate::app::App;
use crate::args::FleetStatusArgs;
use crate::exit::Outcome;
use crate::output::{Format, Report, Table};
use crate::pods::age;

/// All sets.
#[derive(Serialize)]
struct SetList {
    items: Vec<ImageSet>,
    #[serde(skip)]
    now: Timestamp,
}

impl Report for SetList {
    fn table(&self, _: bool, _: bool) -> Table {
        let mut table = Table::new(&["NAME", "IMAGES", "NODES", "READY", "FAILED", "STATUS", "AGE"]);
        for set in &self.items {
            let picture = RolloutPicture::of(set, None, None);
            let failed = picture.nodes.failed + picture.nodes.lost;
            let created = set.metadata.creation_timestamp.as_ref().map(|time| time.0);
            table.row([
                picture.name.clone(),
                set.spec.images.len().to_string(),
                picture.nodes.desired.to_string(),
                picture.nodes.ready.to_string(),
                failed.to_string(),
                picture::state(&picture),
                age::since(created, self.now),
            ]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|set| format!("imageset/{}", name(set))).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.items.iter().filter_map(|set| set.metadata.uid.clone()).collect()
    }
}

fn name(set: &ImageSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

pub(super) async fn run(app: &App, args: &FleetStatusArgs) -> Outcome {
    let requests = connection::requests(app).await?;
    let failed = |error| connection::failed(&error);
    let Some(name) = &args.set else {
        let items = requests.sets().await.map_err(failed)?;
        return app.printer.report(&SetList { items, now: Timestamp::now() });
    };
    let Some(set) = requests.set(name).await.map_err(failed)? else {
        return Err(connection::no_set(&requests, name).await);
    };
    let fleet = requests.fleet().await.map_err(failed)?;
    let reports = requests.reports().await.map_err(failed)?;
    let picture = RolloutPicture::of(&set, fleet.as_ref(), reports.as_deref());
    match app.printer.format {
        Some(format) if format.is_document() => app.printer.document(Format::Json, &picture),
        _ => app.printer.lines(picture::render(&picture, Timestamp::now())),
    }
}
