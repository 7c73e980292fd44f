//! `imagelet rmi`: removes images with all their names, and prints the removed names.

use cri_api::{Image, ImageService, ImageSpec};
use serde::Serialize;

use crate::app::App;
use crate::args::Rmi;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Format, Report, Table, units};

#[derive(Serialize)]
struct Removals {
    removed: Vec<Image>,
}

impl Report for Removals {
    fn table(&self, _: bool, whole: bool) -> Table {
        let mut table = Table::new(&["REMOVED", "IMAGE ID", "ON DISK"]);
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
    let image = match super::images::find_only(service, "remove", text).await {
        Ok(image) => image,
        Err(failure) if failure.code() != Code::Failed => return Err(failure),
        Err(failure) => {
            let wanted = super::images::Wanted::parse(text)?;
            let is_removed = !super::images::ImageList::select(earlier.to_vec(), wanted).images.is_empty();
            return if is_removed { Ok(None) } else { Err(failure) };
        }
    };
    let removed = service.remove_image(&ImageSpec::new(&image.id)).await;
    removed.map_err(|error| Failure::call(format!("remove {text}"), &error))?;
    Ok(Some(image))
}
