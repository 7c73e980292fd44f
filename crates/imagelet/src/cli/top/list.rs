//! The list of `imagelet top`: every pull, pod, image and ended pull as a line with an identity, by which it stays selected. Pure. Called by
//! [`super::frame`] and [`super::view`].

use super::picture::{Picture, PodFigures};
use super::rows::{ended_row, image_row, image_title, pod_title, pods_row, pull_title, running_row};

/// A row that can be selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RowId {
    Pull(u64),
    /// Namespace and name.
    Pod(String, String),
    /// The image ID.
    Image(String),
    /// The number of an ended pull.
    Ended(u64),
}

/// A line of the list.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) text: String,
    /// `None` for titles and empty lines.
    pub(super) row: Option<RowId>,
    /// True for the title of a section.
    pub(super) is_title: bool,
}

/// Returns every line of the list: pulls, pods with those first that are not ready, images, ended pulls.
pub(super) fn list(picture: &Picture, columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let pulls = picture.pulls.iter().map(|pull| (RowId::Pull(pull.id), running_row(pull, columns)));
    section(&mut lines, pull_title(columns), "no running pulls", pulls.collect());
    if let Some(pods) = &picture.pods {
        let mut pods: Vec<&PodFigures> = pods.iter().collect();
        pods.sort_by_key(|pod| (pod.is_ready, &pod.namespace, &pod.name));
        let row = |pod: &PodFigures| {
            (RowId::Pod(pod.namespace.clone(), pod.name.clone()), pods_row(pod, picture.now, columns))
        };
        section(&mut lines, pod_title(columns), "no pods", pods.into_iter().map(row).collect());
    }
    if !picture.images.is_empty() {
        let images = picture.images.iter();
        let row = |image: &cri_api::Image| (RowId::Image(image.id.clone()), image_row(image, picture.now, columns));
        section(&mut lines, image_title(columns), "", images.map(row).collect());
    }
    if !picture.ended.is_empty() {
        let ended = picture.ended.iter();
        let ended = ended.map(|pull| (RowId::Ended(pull.number), ended_row(pull, picture.now, columns)));
        section(&mut lines, "ENDED".to_owned(), "", ended.collect());
    }
    lines
}

fn section(lines: &mut Vec<Line>, title: String, nothing: &str, rows: Vec<(RowId, String)>) {
    let plain = |text: String, is_title: bool| Line { text, row: None, is_title };
    lines.extend([plain(String::new(), false), plain(title, true)]);
    if rows.is_empty() {
        lines.push(plain(nothing.to_owned(), false));
    }
    lines.extend(rows.into_iter().map(|(row, text)| Line { text, row: Some(row), is_title: false }));
}
