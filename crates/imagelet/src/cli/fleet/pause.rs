//! `imagelet fleet pause` and `resume`: of one set, or of all by the Fleet.

use super::connection;
use crate::app::App;
use crate::args::FleetPause;
use crate::exit::Outcome;

pub(super) async fn run(app: &App, args: &FleetPause, paused: bool) -> Outcome {
    let requests = connection::requests(app).await?;
    let (object, changed) = match &args.set {
        Some(name) => match requests.pause_set(name, paused).await.map_err(|error| connection::failed(&error))? {
            Some(changed) => (format!("imageset/{name}"), changed),
            None => return Err(connection::no_set(&requests, name).await),
        },
        None => {
            let changed = requests.pause_all(paused).await.map_err(|error| connection::failed(&error))?;
            (format!("fleet/{}", fleet::api::FLEET), changed)
        }
    };
    let word = match (paused, changed) {
        (true, true) => "paused",
        (true, false) => "is paused already",
        (false, true) => "resumed",
        (false, false) => "is not paused",
    };
    app.printer.lines([format!("{object} {word}")])
}
