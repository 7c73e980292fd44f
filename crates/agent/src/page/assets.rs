//! The files of the page that are the same for every client: style, script and icon. Their paths contain a hash of their content, so
//! that a browser keeps them until they change. Called by [`super::routes`] and [`super::view`].

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

/// A file of the page.
pub(super) struct Asset {
    name: &'static str,
    content_type: &'static str,
    text: &'static str,
}

pub(super) const STYLE: Asset =
    Asset { name: "page.css", content_type: "text/css; charset=utf-8", text: include_str!("page.css") };
pub(super) const SCRIPT: Asset =
    Asset { name: "page.js", content_type: "text/javascript; charset=utf-8", text: include_str!("page.js") };
pub(super) const ICON: Asset =
    Asset { name: "icon.svg", content_type: "image/svg+xml", text: include_str!("icon.svg") };

/// A number of the content of all files: a page that was loaded from an older program sees that it is.
pub(super) const VERSION: u64 = fnv(fnv(fnv(0xcbf2_9ce4_8422_2325, STYLE.text), SCRIPT.text), ICON.text);

/// Returns the FNV-1a hash of a text, by which versions of our files differ.
const fn fnv(mut hash: u64, text: &str) -> u64 {
    let (bytes, mut index) = (text.as_bytes(), 0);
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0100_0000_01b3);
        index += 1;
    }
    hash
}

impl Asset {
    /// Returns the path in the page.
    pub(super) fn path(&self) -> String {
        format!("/assets/{VERSION:016x}/{}", self.name)
    }
}

/// Returns the file of a path below `/assets`, by the number and the name in it. An older number has no file, so that the page
/// reloads.
pub(super) fn find(version: &str, name: &str) -> Option<Response> {
    let asset = [STYLE, SCRIPT, ICON].into_iter().find(|asset| asset.name == name)?;
    let headers = [(CONTENT_TYPE, asset.content_type), (CACHE_CONTROL, "private, max-age=31536000, immutable")];
    (version == format!("{VERSION:016x}")).then(|| (headers, asset.text).into_response())
}
