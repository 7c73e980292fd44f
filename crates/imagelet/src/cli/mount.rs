//! `imagelet mount` and `unmount`: an image's file system on a directory.

use std::path::Path;

use cri_api::ImageSpec;
use engine_api::MountRequest;
use store::MountError;

use crate::app::App;
use crate::args::{Mount, Unmount};
use crate::exit::{Code, Failure, Outcome, chain};

pub(super) async fn mount(app: &App, args: &Mount) -> Outcome {
    let request = MountRequest {
        image: ImageSpec::new(&args.image),
        target: directory(&args.directory)?,
        writable: args.writable.as_deref().map(directory).transpose()?,
    };
    let context = format!("mount {}", args.image);
    let mounted = app.engine("mount").await?.mount_image(&request).await.map_err(|error| {
        let named = error.message().contains(args.image.as_str());
        if named {
            Failure::new(crate::exit::code_of(error.kind()), error.message())
        } else {
            Failure::call(&context, &error)
        }
    })?;
    tracing::debug!(image = mounted.id, layers = mounted.layers, "mounted");
    app.printer.lines([request.target.display().to_string()])
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

/// The path as an agent in another directory would need it.
fn directory(path: &Path) -> Outcome<std::path::PathBuf> {
    std::path::absolute(path).map_err(|error| Failure::caused(Code::Failed, format!("find {}", path.display()), &error))
}
