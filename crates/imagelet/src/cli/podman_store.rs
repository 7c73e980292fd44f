//! `imagelet podman-store`: enables and disables the view of the store for podman. The store creates the view.

use std::path::absolute;

use cri_api::engine::{HiddenImage, PodmanStoreReport, PodmanStoreRequest};

use crate::app::App;
use crate::args::PodmanStore;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Format, units};

pub(super) async fn run(app: &App, args: &PodmanStore) -> Outcome {
    let graph_roots = args.graph_root.iter().map(|root| {
        absolute(root).map_err(|error| Failure::caused(Code::Failed, format!("find {}", root.display()), &error))
    });
    let request = PodmanStoreRequest { remove: args.remove, graph_roots: graph_roots.collect::<Outcome<_>>()? };
    let report = app.engine("podman-store").await?.podman_store(&request).await;
    let operation = if args.remove { "remove the view for podman" } else { "make a view for podman" };
    let report = report.map_err(|error| Failure::call(operation, &error))?;
    for hidden in &report.hidden {
        tracing::warn!("{}", complaint(hidden));
    }
    if let Some(directory) = &report.directory {
        tracing::info!("podman is shown {}", shown(&report));
        if app.printer.format.is_some_and(Format::is_document) {
            return app.printer.document(Format::Json, &report);
        }
        return app.printer.lines([directory.display().to_string()]);
    }
    tracing::info!("there is no view for podman now: podman starts without it once storage.conf does not name it");
    Ok(())
}

fn shown(report: &PodmanStoreReport) -> String {
    let all = report.images + report.hidden.len();
    let plural = if all == 1 { "image" } else { "images" };
    match report.hidden.len() {
        0 => format!("{all} {plural}"),
        _ => format!("{} of {all} {plural}", report.images),
    }
}

fn complaint(hidden: &HiddenImage) -> String {
    let title = hidden.names.first().cloned().unwrap_or_else(|| units::id(&hidden.id, false));
    format!("{title} is left out: {}", hidden.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_hidden_images() {
        let id = oci::Digest::sha256(b"i").to_string();
        let named = HiddenImage { id: id.clone(), names: vec!["r.example/app:1".to_owned()], why: "so".to_owned() };
        assert_eq!(complaint(&named), "r.example/app:1 is left out: so");
        let short = units::id(&id, false);
        let unnamed = HiddenImage { id, names: Vec::new(), why: "so".to_owned() };
        assert_eq!(complaint(&unnamed), format!("{short} is left out: so"));
        let report = |images, hidden: &[&HiddenImage]| PodmanStoreReport {
            images,
            hidden: hidden.iter().copied().cloned().collect(),
            ..PodmanStoreReport::default()
        };
        assert_eq!(shown(&report(1, &[])), "1 image");
        assert_eq!(shown(&report(0, &[])), "0 images");
        assert_eq!(shown(&report(2, &[&named])), "2 of 3 images");
    }
}
