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
        let mut table = Table::new(&["IMAGE", "IMAGE ID", "ON DISK", "FREED", "SHARED"]);
        for row in &self.images {
            let id = units::id(&row.id, whole);
            let size = units::bytes(row.size);
            table.row([row.name.clone(), id, size, known(row.unique_bytes), known(row.shared_bytes)]);
        }
        let total = &self.total;
        let count = units::count(total.images as u64, "image");
        let shared = total.used_bytes.zip(total.unique_bytes).map(|(used, unique)| used.saturating_sub(unique));
        table.row(["TOTAL".to_owned(), count, units::bytes(total.size), known(total.unique_bytes), known(shared)]);
        // Texts would make columns of the images so wide that lines do not fit a terminal.
        table.section(&["STORE", "ON DISK", "NOTE"]);
        if let Some(left) = self.unfinished.filter(|left| *left != UnfinishedPulls::default()) {
            let note = format!("{left} of interrupted pulls");
            table.row(["unfinished pulls".to_owned(), units::bytes(left.bytes), note]);
        }
        if let Some(OwnFiles { reserve_bytes, records_bytes }) = self.store {
            let files = [("reserve", "freed when the disk is full", reserve_bytes), ("records", "", records_bytes)];
            for (name, note, bytes) in files {
                table.row([name.to_owned(), units::bytes(bytes), note.to_owned()]);
            }
        }
        for filesystem in &self.filesystems {
            let inodes = filesystem.inodes_used.map(|n| format!("{} in ", units::count(n, "inode")));
            let note = format!("{}{}", inodes.unwrap_or_default(), filesystem.mountpoint);
            table.row(["all images".to_owned(), known(filesystem.used_bytes), note]);
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
        let store: Vec<String> = lines[5..].iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            store,
            [
                "STORE ON DISK NOTE",
                "unfinished pulls 70B 1 layer, 2 parts of interrupted pulls",
                "reserve 8.39MB freed when the disk is full",
                "records 90B -",
                "all images 60B /m",
            ]
        );
    }

    #[test]
    fn lines_fit_a_terminal_of_80_columns() {
        let mut image = image(1, 1_234_000_000);
        image.repo_tags = vec!["registry.k8s.io/kube-apiserver:v1.30.0".to_owned()];
        let row = row(image, Some(ImageUsage { unique_bytes: 123_400_000, shared_bytes: 123_400_000 }));
        let disk = FilesystemUsage {
            used_bytes: Some(1_234_000_000),
            inodes_used: Some(1_234_567),
            mountpoint: "/var/lib/imagelet".into(),
            ..FilesystemUsage::default()
        };
        let left = UnfinishedPulls { layers: 10, blobs: 20, bytes: 123_400_000 };
        let store = Some(OwnFiles { reserve_bytes: 8 << 20, records_bytes: 123_400_000 });
        let text = Usage { store, ..usage(vec![row], Some(left), vec![disk]) }.table(false, false).render();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{widest:?}\n{text}");
    }

    #[test]
    fn values_the_runtime_does_not_report_are_dashes() {
        let usage = usage(vec![row(image(1, 30), None)], None, Vec::new());
        assert_eq!(usage.total.unique_bytes, None);
        let text = usage.table(false, false).render();
        assert!(text.lines().nth(1).is_some_and(|l| l.trim_end().ends_with("30B       -       -")), "{text}");
    }
}
