//! `imagelet pull`: pulls images from registries, all at the same time. `fleet bake` pulls with it, too.

use std::sync::Arc;
use std::time::Instant;

use cri_api::{Kind, PullImageRequest};
use image_manager::{
    EnsureImageError, EnsureImageRequest, EnsuredImage, ImageManager, ObjectRef, PullPolicy, PullRecords, Recorders,
};
use oci::{Reference, RegistryAuth};
use serde::Serialize;

use super::typed_credential;
use crate::app::App;
use crate::args::Pull;
use crate::exit::{Code, Failure, Outcome, chain, code_of};
use crate::images::Images;
use crate::manager::Mode;
use crate::output::{Report, Table, units};

/// The flag that helps if an image has no variant for this machine's platform.
const PLATFORM_HINT: &str = "--platform names another one";

/// An image that was pulled.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pulled {
    pub(super) image: String,
    pub(super) image_ref: String,
}

#[derive(Serialize)]
struct Pulls {
    images: Vec<Pulled>,
}

impl Report for Pulls {
    fn table(&self, _: bool, whole: bool) -> Table {
        let mut table = Table::new(&["IMAGE", "IMAGE ID"]);
        for pulled in &self.images {
            table.row([pulled.image.clone(), units::id(&pulled.image_ref, whole)]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.images.iter().map(|p| p.image.clone()).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.images.iter().map(|p| p.image_ref.clone()).collect()
    }
}

pub(super) async fn run(app: &App, args: &Pull) -> Outcome {
    let auth = args.creds.as_ref().map(|creds| typed_credential::credential(creds, &args.images)).transpose()?;
    let names = match args.all_tags {
        true => all_tags(app, &args.images, auth.as_ref()).await?,
        false => args.images.iter().map(|text| image_name(text)).collect::<Outcome<Vec<_>>>()?,
    };
    let (images, failures) = pull_all(app, &names, auth).await?;
    app.progress.finish();
    app.protect(images.iter().map(|pulled| pulled.image_ref.as_str())).await;
    let pulls = Pulls { images };
    // Scripts need the value that CRI returns for a pull: the image ref, one per line.
    match app.printer.format {
        None => app.printer.lines(pulls.ids())?,
        Some(_) => app.printer.report(&pulls)?,
    }
    Failure::all(failures).map_or(Ok(()), Err)
}

/// Pulls images at the same time, each in spite of failures of the others. Returns the images and the failures.
pub(super) async fn pull_all(
    app: &App,
    names: &[String],
    auth: Option<RegistryAuth>,
) -> Outcome<(Vec<Pulled>, Vec<Failure>)> {
    let source = app.images().await?;
    app.note_unprivileged().await?;
    let results = match auth {
        Some(auth) => {
            let (_, records) = app.records().await?;
            let pulls = names.iter().cloned().map(|name| pull_with(app, source, records, name, auth.clone()));
            futures::future::join_all(pulls).await
        }
        None => {
            // No events: there is no object that they could refer to.
            let managed = app.managed(Arc::new(Recorders(Vec::new())), Mode::OneShot).await?;
            managed.recover(&app.config, &*source.service()).await?;
            // An image of one of the pulls must not be removed to make space for another.
            let _holds = app.hold(names.iter().map(String::as_str)).await;
            let pulls = names.iter().cloned().map(|name| pull(app, &managed.manager, name));
            futures::future::join_all(pulls).await
        }
    };
    let (mut images, mut failures) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(pulled) => images.push(pulled),
            Err(failure) => failures.push(failure),
        }
    }
    Ok((images, failures))
}

/// Returns the names of all tags of these repositories.
async fn all_tags(app: &App, repositories: &[String], auth: Option<&RegistryAuth>) -> Outcome<Vec<String>> {
    let mut parsed = Vec::with_capacity(repositories.len());
    for text in repositories {
        let reference = Reference::parse(text).map_err(|error| Failure::usage(format!("{text:?}: {error}")))?;
        if reference.tag().is_some() || reference.digest().is_some() {
            return Err(Failure::usage(format!(
                "{text}: with --all-tags, a repository is named without tag and digest"
            )));
        }
        parsed.push((text, reference));
    }
    let mut names = Vec::new();
    for (text, reference) in parsed {
        let tags = super::tags::remote_tags(app, &reference, auth.cloned()).await?;
        if tags.is_empty() {
            return Err(Failure::failed(format!("{text} has no tags")));
        }
        tracing::info!(repository = text, tags = tags.len(), "pulling all tags");
        names.extend(tags.into_iter().map(|tag| format!("{text}:{tag}")));
    }
    Ok(names)
}

/// Returns the name for the service, from the user's text: the default tag is added, nothing else changes.
fn image_name(text: &str) -> Outcome<String> {
    oci::apply_default_tag(text).map_err(|error| Failure::usage(chain(&error)))
}

/// Pulls with the credentials of the node, for no particular pod.
async fn pull(app: &App, manager: &ImageManager, image: String) -> Outcome<Pulled> {
    let begin = Instant::now();
    let request = EnsureImageRequest {
        policy: PullPolicy::Always,
        object: Some(ObjectRef::default()),
        progress: app.progress.sink(&image),
        ..EnsureImageRequest::new(&image)
    };
    match manager.ensure_image_exists(&request).await {
        Ok(EnsuredImage { image_ref, credential, .. }) => {
            let (duration, credential) = (units::seconds(begin.elapsed()), credential.map(|source| source.to_string()));
            tracing::info!(%image, %duration, credential, "pulled");
            Ok(Pulled { image, image_ref })
        }
        Err(error) => {
            let failure = pull_failure(&image, error.kind(), &error.message());
            Err(match &error {
                EnsureImageError::Pull { source, .. } => match source.attempts().last() {
                    Some(attempt) => {
                        failure.with_platform_hint(&attempt.error, PLATFORM_HINT).with_space_hint(&attempt.error)
                    }
                    None => failure,
                },
                _ => failure,
            })
        }
    }
}

/// Pulls with the credential of the command line. No pod has it, so the record permits no pod to use the image: every pod must present its
/// own credential to the registry first.
async fn pull_with(
    app: &App,
    source: &Images,
    records: &PullRecords,
    image: String,
    auth: RegistryAuth,
) -> Outcome<Pulled> {
    let begin = Instant::now();
    let recorded = |error| Failure::caused(Code::Failed, format!("record the pull of {image}"), &error);
    let mut intent = records.intend(&image).await.map_err(recorded)?;
    intent.begin();
    let request = PullImageRequest {
        auth: Some(auth),
        progress: app.progress.sink(&image),
        before_visible: intent.before_visible(),
        ..PullImageRequest::new(&image)
    };
    match source.service().pull_image(request).await {
        Ok(image_ref) => {
            intent.present(&image_ref).await.map_err(recorded)?;
            tracing::info!(%image, duration = %units::seconds(begin.elapsed()), "pulled");
            Ok(Pulled { image, image_ref })
        }
        Err(error) => {
            // The state of a remote runtime is unknown after a failed pull, so keep its intent; our own engine has made nothing visible.
            match source.endpoint() {
                None => intent.failed().await,
                Some(_) => intent.keep().await,
            }
            let failure = pull_failure(&image, Some(error.kind()), error.message());
            Err(failure.with_platform_hint(&error, PLATFORM_HINT).with_space_hint(&error))
        }
    }
}

/// Converts a failed pull. The services name the image in their errors; if one does not, the name is added.
fn pull_failure(image: &str, kind: Option<Kind>, message: &str) -> Failure {
    let named = Reference::parse(image).is_ok_and(|r| message.contains(r.path()));
    let line = if named { message.to_owned() } else { format!("pull {image}: {message}") };
    Failure::new(kind.map_or(Code::Failed, code_of), line)
}
