//! The public face: [`Store`](parts::Store), composed of the parts and handing every operation to one of them.

pub(crate) mod choice;
mod content;
mod images;
mod layers;
mod maintenance;
mod open;
pub(crate) mod parts;
mod views;
