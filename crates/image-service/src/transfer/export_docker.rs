//! Exports in the forms of docker: an archive as `docker save` writes it, and a directory as skopeo's `dir:` does. Called by the
//! export, which writes the layers.

use cri_api::Result;
use oci::{Descriptor, Digest, media_type};
use serde_json::{Value, json};

use super::export::{Export, put};
use super::output::Output;
use super::pick::{Picked, PickedGroup};
use super::{directory, docker, docker_manifest_bytes};

impl Export<'_> {
    pub(super) fn docker(&mut self, groups: &[PickedGroup], output: &mut Output) -> Result<()> {
        let mut items = Vec::new();
        for (group, number, image) in groups
            .iter()
            .flat_map(|group| group.images.iter().enumerate().map(move |(number, image)| (group, number, image)))
        {
            let mut paths = Vec::with_capacity(image.layers.len());
            for layer in &image.layers {
                let written = self.layer(layer, output, |digest| format!("{}.tar", digest.hex()))?;
                paths.push(format!("{}.tar", written.digest.hex()));
            }
            let config = format!("{}.json", image.record.id.hex());
            output.put(&config, &image.record.config)?;
            // A name leads to one image.
            let names: Vec<&String> = if number == 0 { group.names.iter().collect() } else { Vec::new() };
            items.push(json!({ "Config": config, "RepoTags": names, "Layers": paths }));
        }
        output.put(docker::MANIFEST, Value::Array(items).to_string().as_bytes())
    }

    /// As skopeo's `dir:` has it, with a docker manifest: its own where it is one and all blobs were kept.
    pub(super) fn docker_directory(&mut self, image: &Picked, output: &mut Output) -> Result<()> {
        let is_docker = media_type::essence(&image.record.manifest_media_type) == media_type::DOCKER_MANIFEST;
        let name = |digest: &Digest| digest.hex().to_owned();
        let mut layers = Vec::with_capacity(image.layers.len());
        for (blob, layer) in match if is_docker { self.kept(image)? } else { None } {
            Some(kept) => kept,
            None => image.layers.iter().map(|_| None).collect(),
        }
        .into_iter()
        .zip(&image.layers)
        {
            layers.push(match blob {
                Some((descriptor, file)) => self.copy(&descriptor, file, output, name)?,
                None => self.layer(layer, output, name)?,
            });
        }
        let (config, size) = output.stream(name, |out| put(out, &image.record.config))?;
        let own = &image.manifest.layers;
        let manifest = if is_docker && own.iter().map(|l| &l.digest).eq(layers.iter().map(|l| &l.digest)) {
            image.record.manifest.clone()
        } else {
            for layer in &mut layers {
                layer.media_type = match layer.media_type.as_str() {
                    media_type::OCI_LAYER_GZIP => media_type::DOCKER_LAYER_GZIP,
                    media_type::OCI_LAYER => media_type::DOCKER_LAYER,
                    _ => continue,
                }
                .to_owned();
            }
            docker_manifest_bytes(&Descriptor::new(media_type::DOCKER_CONFIG, config, size), &layers)?
        };
        output.put(directory::MANIFEST, &manifest)?;
        output.put(directory::VERSION, format!("{}1.1\n", directory::VERSION_TEXT).as_bytes())
    }
}
