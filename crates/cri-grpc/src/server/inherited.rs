//! Sockets that another process listens on and passes to this one, as systemd does for socket units: it keeps them open while
//! this process restarts, and clients that connect in the meantime wait in their queue. Never removes or changes a file.

use std::io;
use std::os::unix::net::UnixListener;

use super::Listener;
use crate::{Endpoint, EndpointError};

/// Why a socket that was passed on cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// No socket of this path is among those that were passed on.
    #[error("{wanted} is not among the inherited sockets: {}", if paths.is_empty() { "none has a path" } else { paths })]
    Other {
        /// The endpoint that is configured.
        wanted: Endpoint,
        /// The paths that were passed on.
        paths: String,
    },
    /// Which one is meant is not said.
    #[error("{0} sockets were inherited: choose one with --listen")]
    Many(usize),
    /// A socket that cannot be an endpoint.
    #[error("the inherited socket is not an endpoint")]
    NoEndpoint(#[from] EndpointError),
    /// A socket without a path, or one that does not listen.
    #[error("the inherited socket {0}")]
    Unusable(&'static str),
    /// A system call failed.
    #[error("use the inherited socket")]
    Io(#[from] io::Error),
}

/// The socket of `wanted` among those that were passed on, or, where nothing is wanted, the only one. `None` if none was passed.
///
/// # Errors
/// See [`InheritError`].
pub fn inherited(wanted: Option<&Endpoint>, sockets: Vec<UnixListener>) -> Result<Option<Listener>, InheritError> {
    let count = sockets.len();
    let mut named = Vec::with_capacity(count);
    for socket in sockets {
        let path = socket.local_addr()?.as_pathname().map(std::path::Path::to_owned);
        named.push((path, socket));
    }
    let chosen = match wanted {
        _ if count == 0 => return Ok(None),
        None if count > 1 => return Err(InheritError::Many(count)),
        None => named.pop(),
        Some(wanted) => match named.iter().position(|(path, _)| path.as_deref() == Some(wanted.path())) {
            Some(index) => Some(named.swap_remove(index)),
            None => {
                let paths: Vec<_> =
                    named.iter().filter_map(|(path, _)| Some(path.as_ref()?.display().to_string())).collect();
                return Err(InheritError::Other { wanted: wanted.clone(), paths: paths.join(", ") });
            }
        },
    };
    chosen.map(|(path, socket)| listener(path, socket)).transpose()
}

fn listener(path: Option<std::path::PathBuf>, socket: UnixListener) -> Result<Listener, InheritError> {
    let path = path.ok_or(InheritError::Unusable("has no path"))?;
    if !rustix::net::sockopt::socket_acceptconn(&socket).map_err(io::Error::from)? {
        return Err(InheritError::Unusable("does not listen"));
    }
    socket.set_nonblocking(true)?;
    Ok(Listener::of_another(socket, Endpoint::of_path(&path)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inherited_socket_of_the_path_is_chosen_and_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let bound = |name: &str| UnixListener::bind(path(name)).expect("bound");
        let endpoint = |name: &str| Endpoint::of_path(&path(name)).expect("an endpoint");
        let pass = |names: &[&str]| -> Vec<UnixListener> {
            names
                .iter()
                .map(|name| {
                    let _ = std::fs::remove_file(path(name));
                    bound(name)
                })
                .collect()
        };
        assert!(inherited(Some(&endpoint("a")), Vec::new()).expect("none").is_none());
        let only = inherited(None, pass(&["a%20b"])).expect("one").expect("one");
        assert_eq!(only.endpoint().path(), path("a%20b"), "a path is no URL");
        let second = inherited(Some(&endpoint("b")), pass(&["a", "b"])).expect("one of two").expect("one");
        assert!(second.is_inherited() && second.endpoint() == &endpoint("b"));
        drop(second);
        assert!(path("b").exists(), "the file of another process");
        let many = inherited(None, pass(&["a", "b"])).expect_err("which one?").to_string();
        assert_eq!(many, "2 sockets were inherited: choose one with --listen");
        let other = inherited(Some(&endpoint("c")), pass(&["a", "b"])).expect_err("another").to_string();
        let (a, b) = (path("a"), path("b"));
        let want = format!("{} is not among the inherited sockets: {}, {}", endpoint("c"), a.display(), b.display());
        assert_eq!(other, want);
        let deaf = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None);
        let deaf = UnixListener::from(deaf.expect("a socket"));
        rustix::net::bind(&deaf, &rustix::net::SocketAddrUnix::new(path("d")).expect("a path")).expect("bound");
        let deaf = inherited(None, vec![deaf]).expect_err("it does not listen").to_string();
        assert_eq!(deaf, "the inherited socket does not listen");
    }
}
