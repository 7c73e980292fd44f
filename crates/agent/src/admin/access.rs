//! [`Callers`]: who may change things over the admin socket, by the credentials that the kernel vouches for: root, the owner of the root
//! directory, and the members of a configured group. Everyone else who reaches the socket may read what holds no secret. Decides
//! nothing else. Called by [`super::stream`] for each connection, and by the routes that ask.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::path::Path;

use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base::peer_groups::peer_groups;
use cri_api::Kind;

use super::state::Refusal;

/// Those who may change things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Callers {
    /// The user of this process, who owns the root.
    pub(super) owner: u32,
    /// The group whose members may.
    pub(super) group: Option<u32>,
}

/// The user on the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// User id of the peer; `None` where the kernel does not say.
    pub(super) user: Option<u32>,
    pub(super) may_change: bool,
}

impl Callers {
    /// The caller of a connection. Where the kernel does not say who it is, it may change nothing.
    pub(super) fn identify(&self, socket: impl AsFd) -> Caller {
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&socket) else {
            return Caller { user: None, may_change: false };
        };
        let (user, group) = (peer.uid.as_raw(), peer.gid.as_raw());
        let groups = || peer_groups(&socket).unwrap_or_default();
        Caller { user: Some(user), may_change: self.may_change(user, group, groups) }
    }

    fn may_change(&self, user: u32, group: u32, groups: impl FnOnce() -> Vec<u32>) -> bool {
        let is_member = |wanted: u32| group == wanted || groups().contains(&wanted);
        user == 0 || user == self.owner || self.group.is_some_and(is_member)
    }
}

/// Passes on the requests of callers that may change state, and refuses the others.
pub(super) async fn require_change(ConnectInfo(caller): ConnectInfo<Caller>, request: Request, next: Next) -> Response {
    if caller.may_change {
        return next.run(request).await;
    }
    let user = caller.user.map_or_else(|| "an unknown user".to_owned(), |user| format!("user {user}"));
    let line = format!("{user} may not do this: root, the owner of the root directory and members of adminGroup may");
    Refusal::new(Kind::PermissionDenied, line).into_response()
}

/// The id of a group: a number, or a name of /etc/group. Blocks.
///
/// # Errors
/// There is no such group, or the file cannot be read.
pub fn group_id(name: &str) -> io::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    find_group(BufReader::new(File::open(Path::new("/etc/group"))?), name)?
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("/etc/group has no group {name:?}")))
}

fn find_group(file: impl io::BufRead, name: &str) -> io::Result<Option<u32>> {
    for line in file.lines() {
        let line = line?;
        let mut fields = line.split(':');
        if fields.next() == Some(name) {
            return Ok(fields.nth(1).and_then(|number| number.parse().ok()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_the_owner_and_members_may_change_things() {
        let (with, without) = (Callers { owner: 900, group: Some(50) }, Callers { owner: 900, group: None });
        let cases = [
            ("root", 0, 0, vec![], true, true),
            ("the owner", 900, 900, vec![], true, true),
            ("a member by its primary group", 1000, 50, vec![], true, false),
            ("a member by a further group", 1000, 1000, vec![4, 50], true, false),
            ("somebody else", 1000, 1000, vec![4], false, false),
        ];
        for (name, user, group, groups, member, plain) in cases {
            assert_eq!(with.may_change(user, group, || groups.clone()), member, "{name}, with a group");
            assert_eq!(without.may_change(user, group, || groups.clone()), plain, "{name}, without a group");
        }
    }

    #[test]
    fn groups_are_found_by_name_or_number() {
        let file = "root:x:0:\nimagelet:x:977:ada,bob\nbroken:x\n";
        let find = |name| find_group(file.as_bytes(), name).expect("readable");
        assert_eq!((find("imagelet"), find("broken"), find("image"), find("")), (Some(977), None, None, None));
        assert_eq!(group_id("42").expect("a number"), 42);
        assert!(group_id("no-such-group-here").expect_err("absent").to_string().contains("no-such-group-here"));
    }
}
