//! The parts of the admin API that both ends of its socket use: the client, the plain data of collection, versions and errors of
//! answers, and the paths of sockets. Serves nothing. Called by the commands, by [`crate::collection`] and by [`crate::admin`].

pub mod client;
pub mod gc;
pub(crate) mod socket_path;
pub mod wire;
