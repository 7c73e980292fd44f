//! The list of images once, or again and again for those who watch it. Between two looks nobody else is kept from the store.
//! Called by `images`.

use std::time::{Duration, SystemTime};

use cri_api::Image;
use tokio::time::Instant;

use crate::app::App;
use crate::exit::{Failure, Outcome};

/// Pauses between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// A store that nobody holds is opened at least so often: a change can hide behind the look before it.
const LONGEST: Duration = Duration::from_secs(5);

/// Lists of images.
pub(super) struct ImageLists<'a> {
    app: &'a App,
    watches: bool,
    last: Option<Look>,
}

/// The last look.
struct Look {
    at: Instant,
    /// Where this process had to open the store: when the store was changed last.
    changed: Option<SystemTime>,
}

impl<'a> ImageLists<'a> {
    /// A single list, or with `watches` a list whenever there may be another one.
    pub(super) fn new(app: &'a App, watches: bool) -> Self {
        Self { app, watches, last: None }
    }

    /// The next list.
    pub(super) async fn next(&mut self) -> Outcome<Option<Vec<Image>>> {
        let failed = |error: cri_api::Error| Failure::call("list images", &error);
        match &self.last {
            None if !self.watches => {
                self.last = Some(Look { at: Instant::now(), changed: None });
                return Ok(Some(self.app.marked_service().await?.list_images(None).await.map_err(failed)?));
            }
            Some(_) if !self.watches => return Ok(None),
            None => {}
            Some(last) => loop {
                tokio::time::sleep(PAUSE).await;
                let changed = store::Store::changed_at(&self.app.config.root);
                if last.changed.is_none() || last.changed != changed || last.at.elapsed() >= LONGEST {
                    break;
                }
            },
        }
        let at = Instant::now();
        let (images, own) = self.app.list_images_now().await?;
        let changed = if own { store::Store::changed_at(&self.app.config.root) } else { None };
        self.last = Some(Look { at, changed });
        Ok(Some(images))
    }
}
