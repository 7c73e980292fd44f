//! `imagelet registry`: serves an OCI layout as a registry, read-only or writable.

use crate::app::App;
use crate::args::Registry;
use crate::exit::{Code, Failure, Outcome, chain};
use crate::layout_registry::{self, Content};

pub(super) async fn run(app: &App, args: &Registry) -> Outcome {
    let (directory, repository) = (args.layout.clone(), args.repository.clone());
    let writable = args.writable;
    let opened = tokio::task::spawn_blocking(move || {
        let content = match writable {
            true => Content::open_writable(&directory, repository).map_err(|error| Failure::system(&error))?,
            false => Content::open(&directory, repository).map_err(|error| Failure::failed(chain(&error)))?,
        };
        let names = content.names().map_err(|error| Failure::failed(chain(&error)))?;
        Ok::<_, Failure>((content, names))
    });
    let opened = opened.await.map_err(|_| Failure::failed("read the layout: the reader panicked"))?;
    let (layout, names) = opened?;

    let port = layout_registry::listen(&args.listen).await.map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Code::NotPermitted,
            std::io::ErrorKind::InvalidInput => Code::Usage,
            _ => Code::Failed,
        };
        Failure::caused(code, format!("listen on {}", args.listen), &error)
    })?;
    let address = port.address();
    if args.writable && !address.ip().is_loopback() {
        tracing::warn!(%address, layout = %args.layout.display(), "everybody who reaches this address can write to the layout");
    }
    if names.is_empty() && !args.writable {
        tracing::warn!(path = %args.layout.display(), "nothing in the layout has a name: content is found by digest only");
    }
    for name in names {
        tracing::info!(image = %format_args!("{address}/{name}"), "serving");
    }
    app.printer.lines([address.to_string()])?;
    layout_registry::serve(port, layout, app.stop.clone()).await;
    Ok(())
}
