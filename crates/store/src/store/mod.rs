//! The public face: [`Store`](parts::Store), composed of the parts and handing every operation to one of them.

pub(crate) mod choice;
pub(crate) mod open;
