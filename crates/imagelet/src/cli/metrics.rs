//! `imagelet metrics`: the metrics of the process that is running at this root.

use agent::api::client::{self, Method};

use crate::app::App;
use crate::endpoint::admin_socket;
use crate::exit::Outcome;

pub(super) async fn run(app: &App) -> Outcome {
    let text = client::ask(&admin_socket(&app.config), Method::GET, "/metrics").await?;
    app.printer.lines(text.lines())
}
