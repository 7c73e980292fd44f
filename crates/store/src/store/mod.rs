//! The public face: [`Store`](open::Store), composed of the parts and handing every operation to one of them.

pub(crate) mod choice;
mod content;
mod images;
mod layers;
mod maintenance;
pub(crate) mod open;
mod views;
