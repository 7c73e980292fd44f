//! `imagelet rmi`: removes images with all their names, and prints the removed names.

use cri_api::{Image, ImageService, ImageSpec};
use serde::Serialize;

use crate::app::App;
use crate::args::Rmi;
use crate::exit::{Failure, Outcome};
use crate::output::{Format, Report, Table, units};

#[derive(Serialize)]
struct Removals {
    removed: Vec<Image>,
}

impl Report for Removals {
    fn table(&self, _: bool, whole: bool) -> Table {
        let mut table = Table::new(&["REMOVED", "IMAGE ID", "SIZE"]);
        for image in &self.removed {
            let names = if image.repo_tags.is_empty() { &image.repo_digests } else { &image.repo_tags };
            let first = [units::first_name(names)];
            for name in if names.is_empty() { &first[..] } else { &names[..] } {
                table.row([name.clone(), units::id(&image.id, whole), units::bytes(image.size)]);
            }
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.removed.iter().flat_map(|i| i.repo_tags.iter().chain(&i.repo_digests)).cloned().collect()
    }

    fn ids(&self) -> Vec<String> {
        self.removed.iter().map(|i| i.id.clone()).collect()
    }
}

pub(super) async fn run(app: &App, args: &Rmi) -> Outcome {
    let service = app.service().await?;
    let names = if args.all {
        let images = service.list_images(None).await.map_err(|e| Failure::call("list images", &e))?;
        images.into_iter().map(|image| image.id).collect()
    } else {
        args.images.clone()
    };
    let (mut removed, mut failures): (Vec<Image>, _) = (Vec::new(), Vec::new());
    for text in &names {
        match remove(service.as_ref(), text, &removed).await {
            Ok(image) => removed.extend(image),
            Err(failure) => failures.push(failure),
        }
    }
    let removals = Removals { removed };
    match app.printer.format {
        // Plain lines as in docker: they are readable in a log without a title.
        None | Some(Format::Table) if !app.printer.quiet => app.printer.lines(lines(&removals.removed))?,
        _ => app.printer.report(&removals)?,
    }
    Failure::all(failures).map_or(Ok(()), Err)
}

fn lines(removed: &[Image]) -> Vec<String> {
    let mut lines = Vec::new();
    for image in removed {
        lines.extend(image.repo_tags.iter().chain(&image.repo_digests).map(|name| format!("untagged: {name}")));
        lines.push(format!("deleted: {}", image.id));
    }
    lines
}

/// Removes one image; `None` if it was removed by an earlier name of the same command.
async fn remove(service: &dyn ImageService, text: &str, earlier: &[Image]) -> Outcome<Option<Image>> {
    let failed = |error: cri_api::Error| Failure::call(format!("remove {text}"), &error);
    let found = super::images::find(service, text).await.map_err(failed)?;
    let Some(image) = found else {
        let wanted = super::images::Wanted::parse(text)?;
        if !super::images::ImageList::select(earlier.to_vec(), wanted).images.is_empty() {
            return Ok(None);
        }
        return Err(Failure::failed(format!("no such image: {text}")));
    };
    service.remove_image(&ImageSpec::new(&image.id)).await.map_err(failed)?;
    Ok(Some(image))
}
