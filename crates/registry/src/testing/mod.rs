//! Fakes for the tests of every crate: [`TestRegistry`], an in-process registry with faults on demand, and
//! [`ImageBuilder`], which makes small images in memory. Not a part of the product: it trusts its caller and panics on
//! wrong use.

mod answer;
mod faults;
mod image;
mod layer;
mod layout;
mod line;
mod push;
mod request_log;
mod server;
mod state;
mod tar;
mod tls;
mod tokens;

pub use faults::{Fault, Faults};
pub use image::{BuiltImage, BuiltIndex, ImageBuilder, schema1_manifest};
pub use layer::{BuiltLayer, Compression, ImageFormat, LayerBuilder};
pub use line::Line;
pub use push::PushAuth;
pub use request_log::RequestLog;
pub use server::TestRegistry;
pub use state::{Auth, Options};
pub use tar::{Entry, EntryKind};
pub use tls::{TestTls, ca_pem, client_certificate_pem, client_key_pem, self_signed_for_pem, self_signed_pem};
pub use tokens::{BasicOffer, TokenAuth};
