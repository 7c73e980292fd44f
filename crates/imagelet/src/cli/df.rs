//! `imagelet df`: the disk usage of images, individually and in total. All figures are from accounting; no tree is walked.

use cri_api::engine::{ImageUsage, UnfinishedPulls};
use cri_api::{FilesystemUsage, Image, ImageSpec};
use serde::Serialize;

use crate::app::App;
use crate::exit::{Failure, Outcome};
use crate::images::Images;
use crate::output::{Report, Table, units};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: String,
    repo_tags: Vec<String>,
    size: u64,
    /// Bytes of this image alone; unknown from a remote runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_bytes: Option<u64>,
    #[serde(skip)]
    name: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    images: Vec<Row>,
    total: Total,
    /// Data of interrupted pulls that later pulls may use. Not known from a remote runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    unfinished: Option<UnfinishedPulls>,
    /// Files of the store that belong to no image. Not known from a remote runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<OwnFiles>,
    filesystems: Vec<FilesystemUsage>,
}

/// The files of the store itself.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct OwnFiles {
    /// Reserved space that is released when the disk is full, so that removal works.
    reserve_bytes: u64,
    /// The database.
    records_bytes: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Total {
    images: usize,
    /// Sum of the sizes, shared layers counted once per image.
    size: u64,
    /// Sum of the bytes that belong to a single image each.
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_bytes: Option<u64>,
    /// Bytes that all images take on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes_used: Option<u64>,
}

fn known(bytes: Option<u64>) -> String {
    bytes.map(units::bytes).unwrap_or_default()
}

impl Report for Usage {
    fn table(&self, _: bool, whole: bool) -> Table {
        let mut table = Table::new(&["IMAGE", "IMAGE ID", "SIZE", "UNIQUE", "SHARED"]);
        for row in &self.images {
            let id = units::id(&row.id, whole);
            let size = units::bytes(row.size);
            table.row([row.name.clone(), id, size, known(row.unique_bytes), known(row.shared_bytes)]);
        }
        let total = &self.total;
        let count = format!("{} image{}", total.images, if total.images == 1 { "" } else { "s" });
        let shared = total.used_bytes.zip(total.unique_bytes).map(|(used, unique)| used.saturating_sub(unique));
        table.row(["TOTAL".to_owned(), count, units::bytes(total.size), known(total.unique_bytes), known(shared)]);
        if let Some(left) = self.unfinished.filter(|left| *left != UnfinishedPulls::default()) {
            let name = "UNFINISHED PULLS".to_owned();
            table.row([name, left.to_string(), units::bytes(left.bytes), String::new(), String::new()]);
        }
        if let Some(OwnFiles { reserve_bytes, records_bytes }) = self.store {
            let files = [("RESERVE", "freed when the disk is full", reserve_bytes), ("RECORDS", "", records_bytes)];
            for (name, what, bytes) in files {
                table.row([name.to_owned(), what.to_owned(), units::bytes(bytes), String::new(), String::new()]);
            }
        }
        for filesystem in &self.filesystems {
            let used = known(filesystem.used_bytes);
            let inodes = filesystem.inodes_used.map(|n| format!("{n} inodes")).unwrap_or_default();
            table.row([format!("ON DISK {}", filesystem.mountpoint), inodes, used, String::new(), String::new()]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.images.iter().map(|row| row.name.clone()).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.images.iter().map(|row| row.id.clone()).collect()
    }
}

pub(super) async fn run(app: &App) -> Outcome {
    let source = app.images().await?;
    let service = source.service();
    let images = service.list_images(None).await.map_err(|e| Failure::call("list images", &e))?;
    let info = service.image_fs_info().await.map_err(|e| Failure::call("ask for file systems", &e))?;
    let unfinished = source.unfinished().await.map_err(|e| Failure::call("ask for unfinished pulls", &e))?;
    let mut rows = Vec::with_capacity(images.len());
    for image in images {
        let spec = ImageSpec::new(&image.id);
        let usage = source.usage(&spec).await.map_err(|e| Failure::call(format!("usage of {}", image.id), &e))?;
        rows.push(row(image, usage));
    }
    let store = own_files(app, source).await;
    app.printer.report(&Usage { store, ..usage(rows, unfinished, info.image_filesystems) })
}

/// Returns the files of the embedded store; `None` if a runtime keeps the images, or there is no store.
async fn own_files(app: &App, images: &Images) -> Option<OwnFiles> {
    if images.endpoint().is_some() || images.is_without_store() {
        return None;
    }
    let root = app.config.root.clone();
    let measured = tokio::task::spawn_blocking(move || store::Store::own_files(&root)).await.ok()?;
    let measured = measured.inspect_err(|error| tracing::debug!(%error, "the files of the store are not measured"));
    let (reserve_bytes, records_bytes) = measured.ok()?;
    Some(OwnFiles { reserve_bytes, records_bytes })
}

fn row(image: Image, usage: Option<ImageUsage>) -> Row {
    Row {
        name: super::images::name_of(&image).to_owned(),
        id: image.id,
        repo_tags: image.repo_tags,
        size: image.size,
        unique_bytes: usage.map(|u| u.unique_bytes),
        shared_bytes: usage.map(|u| u.shared_bytes),
    }
}

fn usage(mut rows: Vec<Row>, unfinished: Option<UnfinishedPulls>, filesystems: Vec<FilesystemUsage>) -> Usage {
    rows.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.name.cmp(&b.name)));
    let total = Total {
        images: rows.len(),
        size: rows.iter().map(|row| row.size).sum(),
        unique_bytes: rows.iter().map(|row| row.unique_bytes).sum(),
        used_bytes: filesystems.first().and_then(|f| f.used_bytes),
        inodes_used: filesystems.first().and_then(|f| f.inodes_used),
    };
    Usage { images: rows, total, unfinished, store: None, filesystems }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(n: u8, size: u64) -> Image {
        let id = oci::Digest::sha256(&[n]).to_string();
        Image { id, repo_tags: vec![format!("h/x:{n}")], size, ..Image::default() }
    }

    #[test]
    fn totals_count_shared_layers_once() {
        let known = |unique_bytes, shared_bytes| Some(ImageUsage { unique_bytes, shared_bytes });
        let rows = vec![row(image(1, 30), known(10, 20)), row(image(2, 50), known(30, 20))];
        let disk = FilesystemUsage { used_bytes: Some(60), mountpoint: "/m".into(), ..FilesystemUsage::default() };
        let left = UnfinishedPulls { layers: 1, blobs: 2, bytes: 70 };
        let store = Some(OwnFiles { reserve_bytes: 8 << 20, records_bytes: 90 });
        let usage = Usage { store, ..usage(rows, Some(left), vec![disk]) };
        let lines: Vec<Vec<String>> = usage
            .table(false, false)
            .render()
            .lines()
            .map(|l| l.split_whitespace().map(str::to_owned).collect())
            .collect();
        assert_eq!(lines[1][0], "h/x:2", "the largest first");
        assert_eq!(lines[3], ["TOTAL", "2", "images", "80B", "40B", "20B"]);
        assert_eq!(lines[4], ["UNFINISHED", "PULLS", "1", "layer,", "2", "parts", "70B", "-", "-"]);
        assert_eq!(lines[5], ["RESERVE", "freed", "when", "the", "disk", "is", "full", "8.39MB", "-", "-"]);
        assert_eq!(lines[6], ["RECORDS", "-", "90B", "-", "-"]);
        assert_eq!(lines[7], ["ON", "DISK", "/m", "-", "60B", "-", "-"]);
    }

    #[test]
    fn values_the_runtime_does_not_report_are_dashes() {
        let usage = usage(vec![row(image(1, 30), None)], None, Vec::new());
        assert_eq!(usage.total.unique_bytes, None);
        let text = usage.table(false, false).render();
        assert!(text.lines().nth(1).is_some_and(|l| l.trim_end().ends_with("30B    -        -")), "{text}");
    }
}
