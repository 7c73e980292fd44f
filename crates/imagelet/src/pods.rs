//! Pods as people are shown them: those of the agent, under the names that commands use. Called by the commands about pods.

pub(crate) use agent::age;
pub(crate) use agent::pods::{columns, shape};
