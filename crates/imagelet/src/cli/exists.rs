//! `imagelet exists`: tests by its exit code whether images are present, as `podman image exists` does.

use crate::app::App;
use crate::args::Exists;
use crate::exit::{Failure, Outcome};

pub(super) async fn run(app: &App, args: &Exists) -> Outcome {
    let service = app.service().await?;
    for text in &args.images {
        super::images::Wanted::parse(text)?;
        let found = super::images::find(&*service, text).await;
        let found = found.map_err(|error| Failure::call(format!("find {text}"), &error))?;
        if found.is_none() {
            // Like `test`, the command reports by its exit code alone.
            return Err(Failure::ended(1));
        }
    }
    Ok(())
}
