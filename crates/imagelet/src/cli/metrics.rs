//! `imagelet metrics`: the metrics of the process that goes on at this root.

use axum::http::Method;

use crate::admin::{Places, client};
use crate::app::App;
use crate::exit::Outcome;

pub(super) async fn run(app: &App) -> Outcome {
    let text = client::ask(&Places::of(&app.config).socket, Method::GET, "/metrics").await?;
    app.printer.lines(text.lines())
}
