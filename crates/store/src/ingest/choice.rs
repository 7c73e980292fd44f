//! Chooses the shape of new layers: the configured one, or the one that suits this machine best, with the reason. Decides only;
//! [`crate::mount::probe`] detects what the kernel supports, and only where it matters. [`crate::store::open`] calls it once.

use crate::disk::layer::Shape;
use crate::mount::probe::Support;
use crate::options::LayerFormat;

/// The format of new layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewLayers {
    /// The format, one of the two; never [`LayerFormat::Auto`].
    pub format: LayerFormat,
    /// Why, in words that follow "new ones become EROFS files: ".
    pub why: &'static str,
}

impl Shape {
    /// The shape of new layers. `support` is asked where nothing else decides: `None` says that the kernel cannot be asked, since
    /// the right to mount is missing.
    pub(crate) fn of_new_layers(
        format: LayerFormat,
        privileged: bool,
        support: impl FnOnce() -> Option<Support>,
    ) -> (Self, &'static str) {
        match format {
            LayerFormat::Dir => (Self::Dir, CONFIGURED),
            LayerFormat::Erofs | LayerFormat::NestedErofs => (Self::Erofs, CONFIGURED),
            LayerFormat::Auto if !privileged => {
                (Self::Erofs, "they keep owners, devices and attributes which only root can give to files")
            }
            LayerFormat::Auto => match support() {
                Some(Support::File) => (Self::Erofs, "this kernel mounts them from the file"),
                Some(Support::Loop) => (Self::Erofs, "this kernel mounts them through loop devices"),
                Some(Support::None) => (Self::Dir, "this kernel cannot put EROFS files on each other"),
                // Directories could not be put on each other either, nor be given what overlayfs marks them with.
                None => {
                    (Self::Erofs, "the right to mount is missing (CAP_SYS_ADMIN), and they need it only to be mounted")
                }
            },
        }
    }
}

const CONFIGURED: &str = "layerFormat says so";

impl NewLayers {
    /// While there is a view for podman.
    pub(crate) const FOR_PODMAN: Self =
        Self { format: LayerFormat::Dir, why: "podman reads this store, and takes directories alone" };

    /// The same, if podman reads EROFS files that the host mounts.
    pub(crate) const MOUNTED_FOR_PODMAN: Self =
        Self { format: LayerFormat::Erofs, why: "podman reads this store, and the host mounts them for it" };

    pub(crate) fn of((shape, why): (Shape, &'static str)) -> Self {
        let format = match shape {
            Shape::Dir => LayerFormat::Dir,
            Shape::Erofs => LayerFormat::Erofs,
        };
        Self { format, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides() {
        use LayerFormat::{Auto, Dir, Erofs};
        let (own, user) = (true, false);
        for (format, privileged, support, expected, word) in [
            (Dir, own, Some(Support::File), Dir, "layerFormat"),
            (Erofs, own, Some(Support::None), Erofs, "layerFormat"),
            (Auto, user, Some(Support::None), Erofs, "root"),
            (Auto, own, Some(Support::File), Erofs, "from the file"),
            (Auto, own, Some(Support::Loop), Erofs, "loop devices"),
            (Auto, own, Some(Support::None), Dir, "cannot"),
            (Auto, own, None, Erofs, "CAP_SYS_ADMIN"),
        ] {
            let chosen = NewLayers::of(Shape::of_new_layers(format, privileged, || support));
            assert_eq!(chosen.format, expected, "{format:?} {privileged} {support:?}");
            assert!(chosen.why.contains(word), "{chosen:?}");
        }
    }

    #[test]
    fn the_kernel_is_asked_only_where_nothing_else_decides() {
        for (format, privileged) in [(LayerFormat::Dir, true), (LayerFormat::Erofs, true), (LayerFormat::Auto, false)] {
            Shape::of_new_layers(format, privileged, || panic!("{format:?} {privileged}"));
        }
    }
}
