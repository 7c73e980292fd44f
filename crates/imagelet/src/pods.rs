//! The pods of the agent as shown to users, under the names that commands accept. Called by the commands about pods.

pub(crate) use agent::age;
pub(crate) use agent::pods::{columns, shape};
