//! `imagelet prune`: removes images without a name, or all unused ones, by the collector's plan.

use agent::api::gc::CollectRequest;
use cri_api::{Image, ImageSpec};

use crate::app::App;
use crate::args::Prune;
use crate::exit::{Failure, Outcome};
use crate::output::units;

pub(super) async fn run(app: &App, args: &Prune) -> Outcome {
    let service = app.service().await?;
    let request = CollectRequest { all_unused: true, min_age_seconds: Some(0), ..CollectRequest::default() };
    let plan = app.collector().await?.plan(&request).await?;
    let images = service.list_images(None).await.map_err(|e| Failure::call("list images", &e))?;
    let is_removed = |image: &&Image| plan.images.iter().any(|planned| planned.id == image.id && planned.is_removed());
    let pruned: Vec<&Image> =
        images.iter().filter(|image| args.all || image.repo_tags.is_empty()).filter(is_removed).collect();
    let (mut lines, mut failures, mut bytes) = (Vec::new(), Vec::new(), 0);
    for image in pruned {
        if !args.dry_run
            && let Err(error) = service.remove_image(&ImageSpec::new(&image.id)).await
        {
            failures.push(Failure::call(format!("remove {}", image.id), &error));
            continue;
        }
        let freed = plan.images.iter().find(|planned| planned.id == image.id).and_then(|planned| planned.frees_bytes);
        bytes += freed.unwrap_or_default();
        lines.push(image.id.clone());
    }
    let count = lines.len();
    app.printer.lines(lines)?;
    let verb = if args.dry_run { "would be removed" } else { "removed" };
    let images = if count == 1 { "image" } else { "images" };
    tracing::info!("{count} {images} {verb}: {}", units::bytes(bytes));
    Failure::all(failures).map_or(Ok(()), Err)
}
