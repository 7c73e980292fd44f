//! Conversions of layers on request, on tracked blocking threads, one image after the other. A conversion ends when its caller
//! leaves, or at shutdown; layers converted so far stay converted. The store converts.

use std::sync::Arc;

use cri_api::engine::{ConvertReport, ConvertRequest, ConvertedImage, LayerShape};
use cri_api::{Error, Kind, Result};
use oci::{Digest, ReferenceOrId};
use store::{ConvertError, LayerFormat};
use tokio_util::sync::CancellationToken;

use crate::content::Content;
use crate::error;

impl Content {
    pub(crate) async fn convert_images(
        self: &Arc<Self>,
        request: &ConvertRequest,
        token: CancellationToken,
    ) -> Result<ConvertReport> {
        // Dropping the future ends the conversion.
        let _guard = token.clone().drop_guard();
        let (content, request) = (Arc::clone(self), request.clone());
        self.background.run(move || content.convert_now(&request, &|| token.is_cancelled())).await
    }

    /// Converts images one after the other, also after one fails. Blocks.
    fn convert_now(&self, request: &ConvertRequest, cancelled: &(dyn Fn() -> bool + Sync)) -> Result<ConvertReport> {
        let to = match request.to {
            LayerShape::Dir => LayerFormat::Dir,
            LayerShape::Erofs => LayerFormat::Erofs,
        };
        let mut report = ConvertReport::default();
        for id in self.ids_of(request)? {
            let image = match self.store.convert_image(&id, to, cancelled) {
                Ok(done) => {
                    tracing::info!(
                        image = %id, to = %request.to, layers = done.layers, left = done.left.len(),
                        bytes_before = done.bytes_before, bytes_after = done.bytes_after, "converted layers"
                    );
                    done
                }
                Err(error @ ConvertError::Cancelled) => return Err(Error::new(Kind::Cancelled, error.to_string())),
                Err(ConvertError::Store(error)) => {
                    let error = error::from_store(self.store.root(), &error);
                    tracing::warn!(image = %id, %error, "cannot convert layers");
                    let error = Some(error.message().to_owned());
                    ConvertedImage { id: id.to_string(), error, ..ConvertedImage::default() }
                }
            };
            report.images.push(image);
        }
        Ok(report)
    }

    /// The images of a request, each once.
    fn ids_of(&self, request: &ConvertRequest) -> Result<Vec<Digest>> {
        let root = self.store.root();
        if request.images.is_empty() {
            let images = self.store.images().map_err(|error| error::from_store(root, &error))?;
            return Ok(images.into_iter().map(|image| image.id).collect());
        }
        let mut ids: Vec<Digest> = Vec::new();
        for named in request.images.iter().map(ReferenceOrId::parse) {
            let found = self.store.resolve(&named).map_err(|error| error::from_resolve(root, &error))?;
            let id = found.ok_or_else(|| error::absent(&named))?.id;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(ids)
    }
}
