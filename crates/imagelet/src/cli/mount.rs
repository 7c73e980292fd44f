//! `imagelet mount` and `unmount`: an image's file system on a directory, and the list of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cri_api::ImageSpec;
use cri_api::engine::{ImageMount, MountRequest};
use serde::Serialize;
use store::MountError;

use crate::app::App;
use crate::args::{Mount, Unmount};
use crate::exit::{Code, Failure, Outcome, chain};
use crate::output::{Report, Table, units};

/// The mounted images.
#[derive(Serialize)]
struct MountList {
    mounts: Vec<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    image: String,
    names: Vec<String>,
    target: PathBuf,
    writable: bool,
}

impl Report for MountList {
    fn table(&self, _: bool, whole: bool) -> Table {
        let mut table = Table::new(&["IMAGE", "IMAGE ID", "DIRECTORY", "ACCESS"]);
        for Row { image, names, target, writable } in &self.mounts {
            let access = if *writable { "read-write" } else { "read-only" };
            let target = target.display().to_string();
            table.row([units::first_name(names), units::id(image, whole), target, access.to_owned()]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.mounts.iter().map(|row| row.target.display().to_string()).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.mounts.iter().map(|row| row.image.clone()).collect()
    }
}

pub(super) async fn mount(app: &App, args: &Mount) -> Outcome {
    let (Some(image), Some(target)) = (&args.image, &args.directory) else { return list(app).await };
    let request = MountRequest {
        image: ImageSpec::new(image),
        target: directory(target)?,
        writable: args.writable.as_deref().map(directory).transpose()?,
    };
    let context = format!("mount {image}");
    let mounted = app.engine("mount").await?.mount_image(&request).await.map_err(|error| {
        let named = error.message().contains(image.as_str());
        if named {
            Failure::new(crate::exit::code_of(error.kind()), error.message())
        } else {
            Failure::call(&context, &error)
        }
    })?;
    tracing::debug!(image = mounted.id, layers = mounted.layers, "mounted");
    app.printer.lines([request.target.display().to_string()])
}

/// Lists the mounted images, by directory.
async fn list(app: &App) -> Outcome {
    let mounts = app.engine("mount").await?.mounts().await.map_err(|e| Failure::call("list mounts", &e))?;
    let images = app.service().await?.list_images(None).await.map_err(|e| Failure::call("list images", &e))?;
    let names: BTreeMap<String, Vec<String>> = images
        .into_iter()
        .map(|image| (image.id, image.repo_tags.into_iter().chain(image.repo_digests).collect()))
        .collect();
    let row = |mount: ImageMount| {
        let ImageMount { image, target, writable } = mount;
        Row { names: names.get(&image).cloned().unwrap_or_default(), image, target, writable }
    };
    let mut mounts: Vec<Row> = mounts.into_iter().map(row).collect();
    mounts.sort_by(|a, b| a.target.cmp(&b.target));
    app.printer.report(&MountList { mounts })
}

pub(super) async fn unmount(args: &Unmount) -> Outcome {
    let target = directory(&args.directory)?;
    let shown = target.display().to_string();
    let unmounted = tokio::task::spawn_blocking(move || store::mount::unmount(&target)).await;
    match unmounted {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            let code = match &error {
                MountError::NotPermitted { .. } => Code::NotPermitted,
                _ => Code::Failed,
            };
            Err(Failure::new(code, format!("unmount {shown}: {}", chain(&error))))
        }
        Err(_) => Err(Failure::failed(format!("unmount {shown}: the thread panicked"))),
    }
}

/// Returns the absolute path, since an agent may have another working directory.
fn directory(path: &Path) -> Outcome<std::path::PathBuf> {
    std::path::absolute(path).map_err(|error| Failure::caused(Code::Failed, format!("find {}", path.display()), &error))
}
