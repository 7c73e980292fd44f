//! Settings of the status page: where it listens, and which readers it permits.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::flag::Group::Node as Group;
use crate::config::flag::flag;
use crate::config::form::{As, Maybe, Text};

/// The status page of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct StatusPage {
    /// `None`: no page.
    #[serde(rename = "statusAddress", with = "As::<Maybe<Text<SocketAddr>>>")]
    #[schemars(
        description = "Address on which an agent serves a read-only status page for browsers; beyond loopback only over TLS, and for \
                       readers with the token [default: none]",
        extend("imagelet" = flag(Group, "status-address").value("ADDR:PORT").allowed("an address and port such as 127.0.0.1:10260"))
    )]
    pub(crate) address: Option<SocketAddr>,
    #[serde(rename = "statusTokenFile")]
    #[schemars(
        description = "File with the token of the status page's readers, at least 16 characters: the password of any user in a \
                       browser, or a bearer token [default: none]",
        extend("imagelet" = flag(Group, "status-token-file").value("FILE"))
    )]
    pub(crate) token_file: Option<PathBuf>,
}
