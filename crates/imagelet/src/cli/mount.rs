//! `imagelet mount` and `unmount`: an image's file system on a directory.

use std::path::Path;

use cri_api::{ImageSpec, MountRequest};
use image_service::MountError;

use crate::app::{App, Backend};
use crate::args::{Mount, Unmount};
use crate::exit::{Code, Failure, Outcome, chain};

pub(super) async fn mount(app: &App, args: &Mount) -> Outcome {
    let request = MountRequest {
        image: ImageSpec::new(&args.image),
        target: directory(&args.directory)?,
        writable: args.writable.as_deref().map(directory).transpose()?,
    };
    let backend = app.backend().await?;
    let context = format!("mount {}", args.image);
    let mounted = backend.service().mount_image(&request).await.map_err(|error| {
        let named = error.message().contains(args.image.as_str());
        if named {
            Failure::new(crate::exit::code_of(error.kind()), error.message())
        } else {
            Failure::call(&context, &error)
        }
    })?;
    match (mounted, backend) {
        (Some(mounted), _) => {
            tracing::debug!(image = mounted.id, layers = mounted.layers, "mounted");
            app.printer.lines([request.target.display().to_string()])
        }
        (None, Backend::Remote { endpoint, .. }) => Err(Failure::failed(format!(
            "{context}: the service behind {endpoint} cannot mount images: only the embedded store can, while no agent holds it"
        ))),
        (None, Backend::Embedded(_)) => Err(Failure::failed(format!("{context}: this service cannot mount images"))),
    }
}

pub(super) async fn unmount(args: &Unmount) -> Outcome {
    let target = directory(&args.directory)?;
    let shown = target.display().to_string();
    let unmounted = tokio::task::spawn_blocking(move || image_service::unmount(&target)).await;
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

/// The path as an agent in another directory would need it.
fn directory(path: &Path) -> Outcome<std::path::PathBuf> {
    std::path::absolute(path).map_err(|error| Failure::caused(Code::Failed, format!("find {}", path.display()), &error))
}
