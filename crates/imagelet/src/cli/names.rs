//! `imagelet tag` and `imagelet untag`: names of images in the store.

use cri_api::{ImageSpec, Kind};
use oci::Reference;

use crate::app::App;
use crate::args::{Tag, Untag};
use crate::exit::{Failure, Outcome, chain};

pub(super) async fn tag(app: &App, args: &Tag) -> Outcome {
    // An invalid name is wrong usage; in that case, no name is added.
    for name in &args.names {
        let reference = Reference::parse(name).map_err(|error| Failure::usage(chain(&error)))?;
        if reference.digest().is_some() {
            return Err(Failure::usage(format!("{name}: a digest cannot be chosen: name a tag")));
        }
    }
    let engine = app.engine("tag").await?;
    let image = ImageSpec::new(&args.image);
    let mut given = Vec::with_capacity(args.names.len());
    for name in &args.names {
        let tagged = engine.tag_image(&image, name).await;
        given.push(tagged.map_err(|error| failure(&args.image, &format!("tag {} as {name}", args.image), &error))?);
    }
    app.printer.lines(given)
}

pub(super) async fn untag(app: &App, args: &Untag) -> Outcome {
    for name in &args.names {
        let reference = Reference::parse(name).map_err(|error| Failure::usage(chain(&error)))?;
        if reference.digest().is_some() {
            return Err(Failure::usage(format!("{name}: a digest cannot be taken from an image")));
        }
    }
    let engine = app.engine("untag").await?;
    let taken = engine.untag_image(&ImageSpec::new(&args.image), &args.names).await;
    app.printer.lines(taken.map_err(|error| failure(&args.image, &format!("untag {}", args.image), &error))?)
}

fn failure(image: &str, what: &str, error: &cri_api::Error) -> Failure {
    if error.kind() == Kind::NotFound && error.message().ends_with("is not present") {
        return Failure::failed(format!("no such image: {image}"));
    }
    Failure::call(what, error)
}
