//! Converts the state of image sets on this node, as the fleet's daemon has it, to the list of the admin API and the status page. Pure but
//! for the board that [`source`] reads. Called by `serve` and `run`.

use std::sync::Arc;

use agent::admin::image_sets::{
    ImageSetBytes, ImageSetImage, ImageSetImagePhase, ImageSetList, ImageSetPhase, ImageSetState, ImageSets,
};
use fleet::api::{ImagePhase, ImageReport, NodeImagesStatus, SetPhase, TransferredBytes};
use fleet::node::SetBoard;
use jiff::Timestamp;

/// Returns the source of the list.
pub(crate) fn source(board: &SetBoard) -> ImageSets {
    let board = board.clone();
    Arc::new(move || Some(list(&*board.status()?, board.last_report())))
}

fn list(status: &NodeImagesStatus, last_report: Option<Timestamp>) -> ImageSetList {
    let sets = status.sets.iter().map(|set| ImageSetState {
        name: set.name.clone(),
        phase: match set.phase {
            SetPhase::Waiting => ImageSetPhase::Waiting,
            SetPhase::Pulling => ImageSetPhase::Pulling,
            SetPhase::Ready => ImageSetPhase::Ready,
            SetPhase::Failed => ImageSetPhase::Failed,
        },
        bytes: bytes(set.bytes),
        images: status.images.iter().filter(|image| image.set == set.name).map(image).collect(),
    });
    ImageSetList { sets: sets.collect(), last_report }
}

fn image(report: &ImageReport) -> ImageSetImage {
    ImageSetImage {
        name: report.name.clone(),
        digest: report.digest.clone(),
        phase: match report.phase {
            ImagePhase::Waiting => ImageSetImagePhase::Waiting,
            ImagePhase::Pulling => ImageSetImagePhase::Pulling,
            ImagePhase::Ready => ImageSetImagePhase::Ready,
            ImagePhase::Failed => ImageSetImagePhase::Failed,
            ImagePhase::Gone => ImageSetImagePhase::Gone,
        },
        reason: report.reason.clone(),
        message: report.message.clone(),
        attempts: report.attempts,
        retry_at: report.retry_at.as_ref().map(|time| time.0),
        pinned: report.pinned,
        bytes: bytes(report.bytes),
    }
}

fn bytes(bytes: TransferredBytes) -> ImageSetBytes {
    let TransferredBytes { total, done, from_registry, from_mirrors } = bytes;
    ImageSetBytes { total, done, from_registry, from_mirrors }
}

#[cfg(test)]
mod tests {
    use fleet::api::SetReport;

    use super::*;

    #[test]
    fn images_are_in_their_sets() {
        let set = |name: &str, phase| SetReport { name: name.to_owned(), phase, ..SetReport::default() };
        let image = |set: &str, name: &str, phase| ImageReport {
            set: set.to_owned(),
            name: name.to_owned(),
            phase,
            bytes: TransferredBytes { total: 9, done: 7, from_registry: 5, from_mirrors: 2 },
            ..ImageReport::default()
        };
        let status = NodeImagesStatus {
            sets: vec![set("db", SetPhase::Ready), set("web", SetPhase::Failed)],
            images: vec![
                image("web", "a:1", ImagePhase::Failed),
                image("db", "a:1", ImagePhase::Ready),
                image("web", "b:1", ImagePhase::Gone),
            ],
            ..NodeImagesStatus::default()
        };
        let list = list(&status, None);
        let states =
            |set: &ImageSetState| set.images.iter().map(|image| (image.name.clone(), image.phase)).collect::<Vec<_>>();
        assert_eq!((list.sets[0].phase, list.sets[1].phase), (ImageSetPhase::Ready, ImageSetPhase::Failed));
        assert_eq!(states(&list.sets[0]), [("a:1".to_owned(), ImageSetImagePhase::Ready)]);
        let want = [("a:1".to_owned(), ImageSetImagePhase::Failed), ("b:1".to_owned(), ImageSetImagePhase::Gone)];
        assert_eq!(states(&list.sets[1]), want);
        let bytes = list.sets[0].images[0].bytes;
        assert_eq!((bytes.total, bytes.done, bytes.from_registry, bytes.from_mirrors), (9, 7, 5, 2));
    }
}
