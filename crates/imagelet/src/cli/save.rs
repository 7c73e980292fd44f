//! `imagelet save`: an export with the arguments of podman and docker.

use cri_api::engine::Compress;

use super::export;
use crate::app::App;
use crate::args::Save;
use crate::exit::Outcome;

pub(super) async fn run(app: &App, args: &Save) -> Outcome {
    let Save { images, path, format, platforms, multi_image_archive: _ } = args;
    export::write(app, "save", images, path, *format, Compress::AsPulled, &platforms.platforms).await
}
