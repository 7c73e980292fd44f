//! `imagelet gc explain`: whether a collection would remove an image, or a few, and why. Reads two plans, that of a round and that of a
//! collection of everything unused, and removes nothing.

use agent::api::gc::{CollectPlan, CollectRequest};
use image_manager::gc::PlannedImage;
use serde::Serialize;

use super::images::{ImageList, Wanted};
use crate::app::App;
use crate::args::GcExplain;
use crate::exit::{Failure, Outcome};
use crate::output::{Report, Table, units};

/// The verdict on an image.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    #[serde(flatten)]
    image: PlannedImage,
    /// True if nothing holds the image: it would be removed when its space is needed, and with `--all-unused`.
    collectable: bool,
    /// Number of images that would be removed before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<usize>,
    /// Bytes that its removal would free at that point.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_free_bytes: Option<u64>,
    /// True if `would_free_bytes` is exact.
    exact: bool,
}

impl Explained {
    fn verdict(&self) -> String {
        match (self.image.is_removed(), self.collectable) {
            (true, _) => format!("the next round removes it: {}", self.image.why),
            (false, true) if self.image.protected_until.is_some() => {
                format!("it stays: {}; it goes last, where nothing else suffices", self.image.why)
            }
            (false, true) => "it stays while there is space, and may go when space is needed".to_owned(),
            (false, false) => format!("it stays: {}", self.image.why),
        }
    }
}

#[derive(Serialize)]
struct Explanations {
    images: Vec<Explained>,
}

impl Report for Explanations {
    fn table(&self, _: bool, whole: bool) -> Table {
        let mut table =
            Table::new(&["IMAGE", "IMAGE ID", "ON DISK", "SINCE", "LAST USED", "USED BY", "FREED", "VERDICT"]);
        for explained in &self.images {
            let image = &explained.image;
            let about = if explained.exact { "" } else { "at most " };
            let frees = explained.would_free_bytes.map(|bytes| format!("{about}{}", units::bytes(bytes)));
            let (size, id) = (units::bytes(image.size_bytes), units::id(&image.id, whole));
            let [since, used] = [image.first_detected, image.last_used].map(units::time);
            let used_by = image.used_by.clone();
            let name = units::first_name(&image.names);
            table.row([name, id, size, since, used, used_by, frees.unwrap_or_default(), explained.verdict()]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.images.iter().map(|explained| explained.image.title().to_owned()).collect()
    }

    /// Returns the decisions, which scripts want from `-q`.
    fn ids(&self) -> Vec<String> {
        self.images.iter().map(|explained| explained.image.decision.clone()).collect()
    }
}

pub(super) async fn run(app: &App, args: &GcExplain) -> Outcome {
    let wanted = args.images.iter().map(|text| Ok((text, Wanted::parse(text)?))).collect::<Outcome<Vec<_>>>()?;
    let collector = app.collector().await?;
    let round = collector.plan(&CollectRequest::default()).await?;
    let unused = collector.plan(&CollectRequest { all_unused: true, ..CollectRequest::default() }).await?;
    let (mut images, mut failures) = (Vec::new(), Vec::new());
    for (text, wanted) in wanted {
        let found = find(&round, wanted);
        if found.is_empty() {
            failures.push(Failure::failed(format!("no such image: {text}")));
        }
        images.extend(found.into_iter().map(|image| explained(image, &unused)));
    }
    if !images.is_empty() {
        app.printer.report(&Explanations { images })?;
    }
    Failure::all(failures).map_or(Ok(()), Err)
}

/// Returns the images of a plan that an argument selects.
fn find(plan: &CollectPlan, wanted: Vec<Wanted>) -> Vec<PlannedImage> {
    let image = |image: &PlannedImage| {
        let (repo_digests, repo_tags) = image.names.iter().cloned().partition(|name| name.contains('@'));
        cri_api::Image { id: image.id.clone(), repo_tags, repo_digests, ..cri_api::Image::default() }
    };
    let list = ImageList::select(plan.images.iter().map(image).collect(), wanted);
    let meant = |image: &&PlannedImage| list.images.iter().any(|meant| meant.id == image.id);
    plan.images.iter().filter(meant).cloned().collect()
}

fn explained(image: PlannedImage, unused: &CollectPlan) -> Explained {
    let place = unused.images.iter().position(|other| other.id == image.id && other.is_removed());
    let would_free_bytes = place.and_then(|place| unused.images[place].frees_bytes);
    let image = match place {
        // An image that a round would not consider is kept for the reason that always holds.
        None => unused.images.iter().find(|other| other.id == image.id).cloned().unwrap_or(image),
        Some(_) => image,
    };
    Explained { collectable: place.is_some(), before: place, would_free_bytes, exact: unused.exact, image }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str, decision: &str, why: &str, frees_bytes: Option<u64>) -> PlannedImage {
        PlannedImage {
            id: oci::Digest::sha256(name.as_bytes()).to_string(),
            names: vec![name.to_owned()],
            decision: decision.to_owned(),
            why: why.to_owned(),
            frees_bytes,
            ..PlannedImage::default()
        }
    }

    #[test]
    fn the_reason_that_always_holds_is_shown() {
        let names = ["r.example/a:1", "r.example/b:1", "r.example/c:1"];
        let [a, b, c] = names;
        let round = CollectPlan {
            images: vec![
                image(a, "remove", "its space is needed", Some(5)),
                image(b, "not-needed", "its space is not needed", None),
                image(c, "not-needed", "its space is not needed", None),
            ],
            ..CollectPlan::default()
        };
        let unused = CollectPlan {
            images: vec![
                image(a, "remove", "unused", Some(5)),
                image(b, "remove", "unused", Some(7)),
                image(c, "pinned", "pinned", None),
            ],
            exact: true,
            ..CollectPlan::default()
        };
        let told: Vec<_> = names
            .map(|name| {
                let found = find(&round, Wanted::parse(name).expect("parses"));
                let [image] = <[PlannedImage; 1]>::try_from(found).expect("one");
                let explained = explained(image, &unused);
                (explained.verdict(), explained.before, explained.would_free_bytes)
            })
            .into();
        let want = [
            ("the next round removes it: its space is needed".to_owned(), Some(0), Some(5)),
            ("it stays while there is space, and may go when space is needed".to_owned(), Some(1), Some(7)),
            ("it stays: pinned".to_owned(), None, None),
        ];
        assert_eq!(told, want);
        assert_eq!(find(&round, Wanted::parse("r.example/b").expect("parses")).len(), 1);
    }
}
