//! `imagelet convert`: converts layers from one shape on disk to the other, and reports the gain. The store does the conversion.

use std::collections::BTreeMap;

use cri_api::Kind;
use cri_api::engine::{ConvertReport, ConvertRequest, ConvertedImage, LayerShape};
use serde::Serialize;

use crate::app::App;
use crate::args::Convert;
use crate::exit::{Failure, Outcome};
use crate::output::{Report, Table, units};

/// A report with the names of its images.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Converted {
    to: LayerShape,
    images: Vec<Named>,
}

#[derive(Serialize)]
struct Named {
    names: Vec<String>,
    #[serde(flatten)]
    image: ConvertedImage,
}

impl Named {
    fn title(&self, whole: bool) -> String {
        self.names.first().cloned().unwrap_or_else(|| units::id(&self.image.id, whole))
    }
}

impl Converted {
    fn new(to: LayerShape, report: ConvertReport, names: &BTreeMap<String, Vec<String>>) -> Self {
        let named = |image: ConvertedImage| Named { names: names.get(&image.id).cloned().unwrap_or_default(), image };
        Self { to, images: report.images.into_iter().map(named).collect() }
    }

    fn sum(&self, of: impl Fn(&ConvertedImage) -> u64) -> u64 {
        self.images.iter().map(|named| of(&named.image)).sum()
    }

    /// Returns the line after the table.
    fn line(&self) -> String {
        let layers = self.sum(|image| image.layers);
        let (before, after) = (self.sum(|image| image.bytes_before), self.sum(|image| image.bytes_after));
        let plural = if layers == 1 { "layer" } else { "layers" };
        if layers == 0 {
            return format!("Nothing was converted to {}.", self.to);
        }
        format!(
            "Converted {layers} {plural} to {}: {} before, {} now.",
            self.to,
            units::bytes(before),
            units::bytes(after)
        )
    }

    /// Returns the layers that were not converted, one line each.
    fn complaints(&self) -> Vec<String> {
        let of = |named: &Named| {
            let title = named.title(false);
            let left =
                named.image.left.iter().map(|left| {
                    format!("{title}: layer {} stays as it is: {}", units::id(&left.diff_id, false), left.why)
                });
            left.chain(named.image.error.iter().map(|error| format!("{title}: {error}"))).collect::<Vec<_>>()
        };
        self.images.iter().flat_map(of).collect()
    }
}

impl Report for Converted {
    fn table(&self, wide: bool, whole: bool) -> Table {
        let titles = ["IMAGE", "LAYERS", "BEFORE", "AFTER", "LEFT", "+INODES BEFORE", "+INODES AFTER"];
        let mut table = Table::with_wide(wide, &titles);
        for named in &self.images {
            let image = &named.image;
            let (before, after) = (units::bytes(image.bytes_before), units::bytes(image.bytes_after));
            let (layers, left) = (image.layers.to_string(), image.left.len().to_string());
            let inodes = [image.inodes_before, image.inodes_after].map(|count| count.to_string());
            table.row([named.title(whole), layers, before, after, left].into_iter().chain(inodes));
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.images.iter().map(|named| named.title(true)).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.images.iter().map(|named| named.image.id.clone()).collect()
    }
}

pub(super) async fn run(app: &App, args: &Convert) -> Outcome {
    let to = LayerShape::from_name(&args.to).expect("the command line takes no other");
    let request = ConvertRequest { to, images: args.images.clone() };
    let report = match app.images().await?.facts() {
        Some(runtime) => match runtime.convert_layers(&request).await {
            Ok(report) => report
                .ok_or_else(|| Failure::failed("convert layers: the runtime's store takes layers of one form only"))?,
            Err(error) if error.kind() == Kind::Unimplemented => return Err(app.no_engine("convert").await),
            Err(error) => return Err(Failure::call("convert layers", &error)),
        },
        None => {
            let report = app.engine("convert").await?.convert_images(&request).await;
            report.map_err(|error| Failure::call("convert layers", &error))?
        }
    };
    let names: BTreeMap<String, Vec<String>> = app.collector().await?.names().await.unwrap_or_default();
    let converted = Converted::new(to, report, &names);
    app.printer.report(&converted)?;
    if app.printer.is_table() {
        app.printer.lines([converted.line()])?;
    }
    let complaints = converted.complaints().into_iter().map(Failure::failed).collect();
    Failure::all(complaints).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_was_gained_and_what_was_left() {
        let id = |text: &str| oci::Digest::sha256(text.as_bytes()).to_string();
        let done = ConvertedImage {
            id: id("i"),
            layers: 3,
            bytes_before: 5_000_000,
            bytes_after: 4_000_000,
            inodes_before: 700,
            inodes_after: 9,
            ..ConvertedImage::default()
        };
        let left = cri_api::engine::LeftLayer { diff_id: id("l"), why: "it is mounted on /mnt".to_owned() };
        let mounted = ConvertedImage { id: id("m"), left: vec![left], ..ConvertedImage::default() };
        let names = BTreeMap::from([(id("i"), vec!["r.example/app:1".to_owned()])]);
        let report = ConvertReport { images: vec![done, mounted] };
        let converted = Converted::new(LayerShape::Erofs, report, &names);
        let short = units::id(&id("m"), false);
        let table = converted.table(true, false).render();
        assert!(table.lines().next().is_some_and(|line| line.ends_with("INODES AFTER")), "{table}");
        assert!(table.contains("r.example/app:1") && table.contains(&short), "{table}");
        assert_eq!(converted.line(), "Converted 3 layers to erofs: 5MB before, 4MB now.");
        let complaint = format!("{short}: layer {} stays as it is: it is mounted on /mnt", units::id(&id("l"), false));
        assert_eq!(converted.complaints(), [complaint]);
        let nothing = Converted::new(LayerShape::Dir, ConvertReport::default(), &names);
        assert_eq!((nothing.line(), nothing.complaints()), ("Nothing was converted to dir.".to_owned(), Vec::new()));
    }
}
