//! The file tree of an image or a layer, opened for a command: from the store of this process, or, where an agent has the root, from
//! the root itself while the agent holds the layers. Shows and writes nothing.

use axum::http::Method;
use image_service::tree::{Kind, Stack, Stat, View, ViewError};

use crate::admin::client::{Hold, hold};
use crate::admin::{Places, stack_target};
use crate::app::{App, Backend};
use crate::exit::{Code, Failure, Outcome, chain};

/// An open tree. Nothing of it is removed meanwhile.
pub(super) struct Tree {
    pub(super) view: View,
    /// The agent's promise, which ends with this.
    _hold: Option<Hold>,
}

/// Opens the tree of an image, by name or id, or of a layer, by its digest. `command` is for messages.
pub(super) async fn open(app: &App, command: &str, text: &str) -> Outcome<Tree> {
    match app.backend().await? {
        Backend::Embedded(engine) => {
            let view = engine.view(text).await.map_err(|error| Failure::call(command, &error))?;
            Ok(Tree { view, _hold: None })
        }
        Backend::Remote { is_agent: true, .. } => {
            let socket = Places::of(&app.config).socket;
            let (answer, hold) = hold(&socket, Method::GET, &stack_target(text)).await?;
            let stack: Stack = serde_json::from_str(&answer)
                .map_err(|error| Failure::caused(Code::Failed, format!("understand {}", socket.display()), &error))?;
            let root = app.config.root.clone();
            let shown = command.to_owned();
            let view = blocking(command, move || View::open(&root, &stack).map_err(|error| failure(shown, &error)));
            Ok(Tree { view: view.await?, _hold: Some(hold) })
        }
        Backend::Remote { endpoint, .. } => Err(Failure::failed(format!(
            "{command} works on the embedded store only, and the images are behind {endpoint}"
        ))),
    }
}

/// Runs what blocks, and waits for it. When the program is ended, it is dropped where it stands.
pub(super) async fn blocking<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(Failure::failed(format!("{what}: the thread panicked"))))
}

/// A failure with the tree, or with where a copy goes.
pub(super) fn failure(context: impl std::fmt::Display, error: &ViewError) -> Failure {
    let code = match error {
        ViewError::Write { source, .. } | ViewError::Layer { source, .. } | ViewError::Read { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            Code::NotPermitted
        }
        _ => Code::Failed,
    };
    Failure::new(code, format!("{context}: {}", chain(error)))
}

/// Kind and permissions as `ls -l` shows them.
pub(super) fn mode_text(stat: &Stat) -> String {
    let first = match stat.kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Char => 'c',
        Kind::Block => 'b',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::Whiteout => 'w',
    };
    let mut text = String::from(first);
    for (shift, special, marks) in [(6, 0o4000, ['s', 'S']), (3, 0o2000, ['s', 'S']), (0, 0o1000, ['t', 'T'])] {
        let bits = stat.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, stat.mode & special != 0) {
            (true, true) => marks[0],
            (false, true) => marks[1],
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}
