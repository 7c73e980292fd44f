//! `imagelet top`: a live view of an agent's pulls, disk and pods; printed once as plain text if standard output is no terminal. Asks the
//! admin API and decides nothing.

mod details;
mod frame;
mod keys;
mod list;
mod picture;
mod rows;
mod screen;
mod view;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::admin::images::ImageList;
use agent::admin::pulls::Pulls;
use agent::api::client::{self, AskError, Events, Method};
use agent::api::wire::AgentVersion;
use agent::node::board::PodList;
use cri_api::Kind;
use image_manager::EndedPull;
use serde_json::Value;

use crate::app::App;
use crate::endpoint::admin_socket;
use crate::exit::{Code, Failure, Outcome};
use crate::pods::columns::columns;
use crate::pods::shape::{ContainerStatus, Pod, State};
use picture::{ContainerFigures, DiskFigures, Picture, PodFigures};
use screen::Screen;
use view::View;

/// Interval of updates of running pulls.
const INTERVAL_MILLISECONDS: u64 = 500;
/// Interval at which the disk and the pods are requested.
const PERIOD: Duration = Duration::from_secs(2);
/// Number of ended pulls that are kept: more than a screen has rows.
const ENDED: usize = 50;

pub(super) async fn run(app: &App) -> Outcome {
    let socket = admin_socket(&app.config);
    let mut picture = Picture::default();
    let agent: AgentVersion = client::ask_json(&socket, Method::GET, "/v1/version").await?;
    picture.agent = format!("imagelet {}, process {}", agent.version, agent.pid);
    let pulls: Pulls = client::ask_json(&socket, Method::GET, "/v1/pulls").await?;
    picture.pulls = pulls.pulls;
    remember(&mut picture.ended, pulls.ended);
    refresh(&mut picture, &socket).await?;
    if !std::io::stdout().is_terminal() {
        return app.printer.lines(frame::plain(&picture));
    }
    let since = picture.ended.first().map_or(0, |ended| ended.number);
    let target = format!("/v1/pulls/events?interval={INTERVAL_MILLISECONDS}&since={since}");
    let events = client::events(&socket, Method::GET, &target, Vec::new()).await?;
    watch(app, picture, socket, events).await
}

/// Paints, and applies keys, until the user presses `q`, a signal arrives, or the agent ends.
async fn watch(app: &App, mut picture: Picture, socket: PathBuf, mut events: Events) -> Outcome {
    let mut screen = Screen::enter().map_err(|error| Failure::failed(format!("paint on the terminal: {error}")))?;
    let mut period = tokio::time::interval(PERIOD);
    let mut view = View::default();
    loop {
        screen.paint(&frame::screen(&picture, &view, screen.size()));
        tokio::select! {
            () = app.stop.cancelled() => return Ok(()),
            key = screen.key_or_resize() => if let Some(key) = key {
                let (columns, rows) = screen.size();
                let height = frame::body_height(&picture, columns, rows);
                if !view.press(key, &list::list(&picture, columns), height) {
                    return Ok(());
                }
            },
            _ = period.tick() => {
                picture.now = jiff::Timestamp::now();
                picture.problem = refresh(&mut picture, &socket).await.err().map(|error| error.to_string());
            }
            event = events.next_of::<Pulls>("pulls") => match event? {
                Some(event) => {
                    picture.now = jiff::Timestamp::now();
                    picture.pulls = event.pulls;
                    remember(&mut picture.ended, event.ended);
                }
                None => return Err(Failure::new(Code::Unreachable, "the agent ended")),
            },
        }
    }
}

/// Adds ended pulls, the latest first.
fn remember(known: &mut Vec<EndedPull>, new: Vec<EndedPull>) {
    known.splice(0..0, new.into_iter().rev());
    known.truncate(ENDED);
}

/// Requests the disk, the images and the pods.
async fn refresh(picture: &mut Picture, socket: &Path) -> Result<(), AskError> {
    picture.now = jiff::Timestamp::now();
    if let Some(status) = there(client::ask_json::<Value>(socket, Method::GET, "/v1/status").await)? {
        let number = |of: &Value, name: &str| of[name].as_u64();
        let disk = &status["imageFs"];
        picture.image_count = number(&status, "imageCount");
        picture.disk = number(disk, "capacityBytes").filter(|capacity| *capacity > 0).map(|capacity| DiskFigures {
            path: disk["path"].as_str().unwrap_or_default().to_owned(),
            capacity,
            available: number(disk, "availableBytes").unwrap_or_default(),
            images: number(disk, "imagesBytes"),
        });
        let conditions = status["conditions"].as_array().into_iter().flatten();
        picture.has_pressure = conditions
            .into_iter()
            .any(|condition| condition["type"] == "DiskPressure" && condition["status"] == "True");
    }
    let images = there(client::ask_json::<ImageList>(socket, Method::GET, "/v1/images").await)?;
    picture.images = images.map(|list| list.images).unwrap_or_default();
    picture.images.sort_by(|a, b| rows::image_name(a).cmp(rows::image_name(b)));
    let pods = there(client::ask_json::<PodList>(socket, Method::GET, "/v1/pods").await)?;
    picture.pods = pods.map(|list| list.items.iter().filter_map(figures).collect());
    Ok(())
}

/// Returns the answer of an agent, or `None` if the agent does not have this part.
fn there<T>(answer: Result<T, AskError>) -> Result<Option<T>, AskError> {
    match answer {
        // Right after its start, an agent does not know the running pods yet.
        Err(AskError::Refused(error)) if matches!(error.kind(), Kind::NotFound | Kind::Unavailable) => Ok(None),
        answer => answer.map(Some),
    }
}

fn figures(value: &Value) -> Option<PodFigures> {
    let pod = Pod::of(value).ok()?;
    let columns = columns(&pod);
    Some(PodFigures {
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        ready: columns.ready(),
        is_ready: columns.ready.0 == columns.ready.1,
        status: columns.status.clone(),
        restarts: columns.restarts,
        created: pod.metadata.creation_timestamp,
        containers: containers(&pod),
    })
}

fn containers(pod: &Pod) -> Vec<ContainerFigures> {
    let status = &pod.status;
    let all = status.init_container_statuses.iter().chain(&status.container_statuses);
    let figures = |container: &ContainerStatus| {
        let state = match &container.state {
            State { waiting: Some(waiting), .. } if waiting.reason.is_empty() => "waiting".to_owned(),
            State { waiting: Some(waiting), .. } => format!("waiting: {}", waiting.reason),
            State { terminated: Some(ended), .. } => format!("ended with code {}", ended.exit_code),
            State { running: Some(_), .. } if container.ready => "running".to_owned(),
            State { running: Some(_), .. } => "running, not ready".to_owned(),
            _ => "unknown".to_owned(),
        };
        let (name, image) = (container.name.clone(), container.image.clone());
        ContainerFigures { name, image, state, restarts: container.restart_count }
    };
    all.map(figures).collect()
}
