//! [`Sharing`]: the layers that images have in common, small enough to be drawn: layers of the same images are one group, and so are images with
//! the same groups of layers. Nothing is lost by that. Pure; called by [`super::inventory`].

use std::collections::HashMap;

use cri_api::engine::{ImageLayers, ImageUsage};

/// The largest number of groups of layers that are drawn: those that save the most.
const GROUPS: usize = 40;

/// Layers that images share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sharing {
    /// Groups of layers, those first that save the most.
    pub(super) layers: Vec<LayerGroup>,
    /// Groups of images, ordered so that what is alike is near.
    pub(super) images: Vec<ImageGroup>,
    /// Groups of layers that are too small to be drawn, and the bytes that these save.
    pub(super) left_out: (usize, u64),
    /// Images that share no layer.
    pub(super) alone: usize,
    /// Bytes that all images take on disk.
    pub(super) disk_bytes: u64,
    /// Bytes that would be needed in addition if images shared nothing.
    pub(super) saved_bytes: u64,
}

/// Layers that the same images have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LayerGroup {
    /// Number of layers.
    pub(super) layers: usize,
    /// Their bytes on disk.
    pub(super) bytes: u64,
    /// Ids of the images.
    pub(super) images: Vec<String>,
}

impl LayerGroup {
    /// Bytes that would be needed besides if each image had its own.
    pub(super) fn saved(&self) -> u64 {
        self.bytes.saturating_mul(self.images.len().saturating_sub(1) as u64)
    }
}

/// Images that have the same shared layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImageGroup {
    /// Ids of the images.
    pub(super) images: Vec<String>,
    /// Which of the groups of layers they have, rising.
    pub(super) layers: Vec<usize>,
}

/// Returns the unique and shared bytes of each image, by id.
pub(super) fn usage(layers: &ImageLayers) -> HashMap<&str, ImageUsage> {
    let mut users = vec![0_usize; layers.layers.len()];
    let indices = |of: &cri_api::engine::LayersOf| of.layers.iter().map(|layer| *layer as usize).collect::<Vec<_>>();
    for layer in layers.images.values().flat_map(indices) {
        if let Some(count) = users.get_mut(layer) {
            *count += 1;
        }
    }
    let one = |of: &cri_api::engine::LayersOf| {
        let mut usage = ImageUsage { unique_bytes: of.own_bytes, shared_bytes: 0 };
        for layer in indices(of) {
            let bytes = layers.layers.get(layer).copied().unwrap_or_default();
            let part = if users.get(layer) == Some(&1) { &mut usage.unique_bytes } else { &mut usage.shared_bytes };
            *part = part.saturating_add(bytes);
        }
        usage
    };
    layers.images.iter().map(|(id, of)| (id.as_str(), one(of))).collect()
}

impl Sharing {
    /// Finds the shared layers.
    pub(super) fn of(layers: &ImageLayers) -> Self {
        let ids: Vec<&String> = layers.images.keys().collect();
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); layers.layers.len()];
        for (image, of) in layers.images.values().enumerate() {
            for layer in &of.layers {
                if let Some(users) = users.get_mut(*layer as usize) {
                    users.push(image);
                }
            }
        }
        let mut groups: HashMap<&[usize], (usize, u64)> = HashMap::new();
        for (users, bytes) in users.iter().zip(&layers.layers).filter(|(users, _)| users.len() > 1) {
            let group = groups.entry(users).or_default();
            *group = (group.0 + 1, group.1.saturating_add(*bytes));
        }
        let mut groups: Vec<(&[usize], (usize, u64))> = groups.into_iter().collect();
        let saved = |(users, (_, bytes)): &(&[usize], (usize, u64))| bytes.saturating_mul(users.len() as u64 - 1);
        groups.sort_by(|a, b| saved(b).cmp(&saved(a)).then_with(|| a.0.cmp(b.0)));
        let saved_bytes = groups.iter().map(&saved).fold(0, u64::saturating_add);
        let small = groups.split_off(groups.len().min(GROUPS));
        let left_out = (small.len(), small.iter().map(&saved).fold(0, u64::saturating_add));
        let own_bytes = layers.images.values().map(|of| of.own_bytes);
        let used_bytes =
            users.iter().zip(&layers.layers).filter(|(users, _)| !users.is_empty()).map(|(_, bytes)| *bytes);
        let disk_bytes = own_bytes.chain(used_bytes).fold(0, u64::saturating_add);
        let mut of_images: Vec<Vec<usize>> = vec![Vec::new(); ids.len()];
        for (index, (users, _)) in groups.iter().enumerate() {
            users.iter().for_each(|image| of_images[*image].push(index));
        }
        let mut alike: HashMap<&[usize], Vec<String>> = HashMap::new();
        for (image, groups) in of_images.iter().enumerate().filter(|(_, groups)| !groups.is_empty()) {
            alike.entry(groups).or_default().push(ids[image].clone());
        }
        let alone = ids.len() - alike.values().map(Vec::len).sum::<usize>();
        let mut images: Vec<ImageGroup> =
            alike.into_iter().map(|(layers, images)| ImageGroup { images, layers: layers.to_vec() }).collect();
        images.sort_by(|a, b| a.layers.cmp(&b.layers));
        let named = |users: &[usize]| users.iter().map(|image| ids[*image].clone()).collect();
        let group =
            |(users, (layers, bytes)): (&[usize], (usize, u64))| LayerGroup { layers, bytes, images: named(users) };
        Self { layers: groups.into_iter().map(group).collect(), images, left_out, alone, disk_bytes, saved_bytes }
    }
}

#[cfg(test)]
mod tests {
    use cri_api::engine::LayersOf;

    use super::*;

    fn layers(bytes: &[u64], images: &[(&str, u64, &[u32])]) -> ImageLayers {
        let of = |own_bytes, layers: &[u32]| LayersOf { own_bytes, layers: layers.to_vec(), used_by: None };
        let images = images.iter().map(|(id, own, layers)| ((*id).to_owned(), of(*own, layers))).collect();
        ImageLayers { layers: bytes.to_vec(), images }
    }

    #[test]
    fn bytes_are_unique_or_shared() {
        let layers = layers(&[100, 20, 3], &[("a", 1, &[0, 1]), ("b", 2, &[0, 2]), ("c", 5, &[])]);
        let usage = usage(&layers);
        let of = |id: &str| (usage[id].unique_bytes, usage[id].shared_bytes);
        assert_eq!((of("a"), of("b"), of("c")), ((21, 100), (5, 100), (5, 0)));
    }

    #[test]
    fn what_is_alike_is_one_group() {
        let layers = layers(
            &[100, 10, 50, 7, 1],
            &[("a", 0, &[0, 1, 2]), ("b", 0, &[0, 1, 2]), ("c", 0, &[0, 1]), ("d", 0, &[3]), ("e", 0, &[4])],
        );
        let sharing = Sharing::of(&layers);
        let groups: Vec<_> = sharing.layers.iter().map(|g| (g.layers, g.bytes, g.images.join(""), g.saved())).collect();
        assert_eq!(groups, [(2, 110, "abc".to_owned(), 220), (1, 50, "ab".to_owned(), 50)]);
        let rows: Vec<_> = sharing.images.iter().map(|g| (g.images.join(""), g.layers.clone())).collect();
        assert_eq!(rows, [("c".to_owned(), vec![0]), ("ab".to_owned(), vec![0, 1])]);
        assert_eq!((sharing.alone, sharing.saved_bytes, sharing.left_out), (2, 270, (0, 0)));
        assert_eq!(sharing.disk_bytes, 168);
        assert_eq!(Sharing::of(&ImageLayers::default()), Sharing::default());
    }

    #[test]
    fn only_the_largest_groups_are_drawn() {
        // Every image shares a layer of its own size with the first one.
        let count = u32::try_from(GROUPS).expect("few") + 5;
        let all: Vec<u32> = (0..count).collect();
        let mut images = vec![("base".to_owned(), all)];
        images.extend((0..count).map(|n| (format!("image-{n:03}"), vec![n])));
        let images: Vec<(&str, u64, &[u32])> =
            images.iter().map(|(id, layers)| (id.as_str(), 0, layers.as_slice())).collect();
        let bytes: Vec<u64> = (1..=u64::from(count)).collect();
        let sharing = Sharing::of(&layers(&bytes, &images));
        assert_eq!((sharing.layers.len(), sharing.left_out), (GROUPS, (5, 1 + 2 + 3 + 4 + 5)));
        assert_eq!((sharing.layers[0].bytes, sharing.alone), (u64::from(count), 5));
        // Indices that lead nowhere are left out.
        let odd = layers(&[1], &[("a", 0, &[0, 9]), ("b", 0, &[0, 9])]);
        assert_eq!((Sharing::of(&odd).layers.len(), usage(&odd)["a"].shared_bytes), (1, 1));
    }
}
