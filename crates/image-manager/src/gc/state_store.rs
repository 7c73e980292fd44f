//! [`StateStore`]: the usage history and the pins in memory, kept equal to [`StateFiles`]. Its lock is held for
//! a whole round, so that rounds do not overlap.

use std::path::PathBuf;

use base::{FileIdentity, blocking};
use tokio::sync::{Mutex, MutexGuard};

use super::detect::handler;
use super::history::UsageHistory;
use super::keep_rules::{PinOwner, Pins};
use super::report::{GcError, chain};
use super::state_files::{StateError, StateFiles};

/// The state that rounds work on.
#[derive(Debug, Default)]
pub(super) struct GcState {
    loaded: bool,
    pub(super) history: UsageHistory,
    /// Pins of the administrator.
    pub(super) pins: Pins,
    /// Pins of the image sets of a cluster.
    pub(super) set_pins: Pins,
    /// States of the files that this state was read from or written to.
    usage_stamp: Option<FileIdentity>,
    pins_stamp: Option<FileIdentity>,
    set_pins_stamp: Option<FileIdentity>,
}

impl GcState {
    /// Returns the last user of an image, `namespace/pod/container`; empty if it is not known.
    pub(super) fn last_user(&self, image: &cri_api::Image) -> &str {
        self.history.get(&image.id, handler(image)).map_or("", |record| &record.used_by)
    }
}

/// The state and its files.
pub(super) struct StateStore {
    /// `None`: the state lives in memory only.
    files: Option<StateFiles>,
    /// Guards the state; held for a whole round.
    state: Mutex<GcState>,
}

impl StateStore {
    pub(super) fn new(files: Option<StateFiles>) -> Self {
        Self { files, state: Mutex::default() }
    }

    /// Locks the state. Reads its files the first time, and when another process has written them since.
    pub(super) async fn lock(&self) -> Result<MutexGuard<'_, GcState>, GcError> {
        let mut state = self.state.lock().await;
        let Some(files) = self.files.clone() else { return Ok(state) };
        let (usage_stamp, pins_stamp, set_pins_stamp) = (state.usage_stamp, state.pins_stamp, state.set_pins_stamp);
        let read = blocking(move || {
            let pins = files.pins(PinOwner::Administrator, pins_stamp)?;
            Ok::<_, StateError>((files.history(usage_stamp)?, pins, files.pins(PinOwner::ImageSets, set_pins_stamp)?))
        });
        let (history, pins, set_pins) = read.await.ok_or(GcError::ShuttingDown)??;
        let warn = |aside: Option<PathBuf>| {
            if let Some(aside) = aside {
                tracing::warn!(path = %aside.display(), "a file of the garbage collection cannot be read, and was renamed");
            }
        };
        if let Some(read) = history {
            warn(read.aside);
            match read.state {
                Some(theirs) if state.loaded => state.history.merge(theirs),
                Some(theirs) => state.history = theirs,
                None => {}
            }
            (state.usage_stamp, state.loaded) = (read.stamp, true);
        }
        if let Some(read) = pins {
            warn(read.aside);
            if let Some(pins) = read.state {
                for pattern in pins.iter().filter(|pattern| pattern.is_obsolete()) {
                    tracing::warn!(%pattern, "a pin by label fits no image any more: pin the images by name");
                }
                state.pins = pins;
            }
            state.pins_stamp = read.stamp;
        }
        if let Some(read) = set_pins {
            warn(read.aside);
            state.set_pins = read.state.unwrap_or_default();
            state.set_pins_stamp = read.stamp;
        }
        Ok(state)
    }

    /// Stores the history. A full disk only delays that: the history stays in memory, the file on disk stays whole, and the
    /// next round tries again.
    pub(super) async fn save(&self, state: &mut GcState) -> Result<(), GcError> {
        let Some(files) = self.files.clone() else { return Ok(()) };
        // If this future is dropped before it ends, the history is read again.
        let stamp = state.usage_stamp.take();
        state.loaded = false;
        let mut history = std::mem::take(&mut state.history);
        let stored = blocking(move || {
            let result = files.store_history(&mut history, stamp);
            (history, result)
        });
        let (history, result) = stored.await.ok_or(GcError::ShuttingDown)?;
        (state.history, state.loaded) = (history, true);
        match result {
            Ok(stored) => state.usage_stamp = stored,
            Err(error) => {
                state.usage_stamp = stamp;
                if !error.is_disk_full() {
                    return Err(error.into());
                }
                tracing::warn!(error = chain(&error.into()), "what was seen of usage is not written down for now");
            }
        }
        Ok(())
    }

    /// Changes the pins of an owner in memory and on disk. Returns true if that changed anything.
    pub(super) async fn change_pins(
        &self,
        of: PinOwner,
        change: impl FnOnce(&mut Pins) -> bool + Send + 'static,
    ) -> Result<bool, GcError> {
        let mut state = self.lock().await?;
        let state = &mut *state;
        let (known, known_stamp) = match of {
            PinOwner::Administrator => (&mut state.pins, &mut state.pins_stamp),
            PinOwner::ImageSets => (&mut state.set_pins, &mut state.set_pins_stamp),
        };
        let Some(files) = self.files.clone() else { return Ok(change(known)) };
        let (changed, pins, stamp) =
            blocking(move || files.change_pins(of, change)).await.ok_or(GcError::ShuttingDown)??;
        (*known, *known_stamp) = (pins, stamp);
        Ok(changed)
    }
}
