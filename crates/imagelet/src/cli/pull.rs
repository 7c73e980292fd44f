//! `imagelet pull`: asks the registry for images, all at the same time.

use std::time::Instant;

use cri_api::{ImageService, PullImageRequest};
use oci::{Reference, RegistryAuth};
use serde::Serialize;

use super::image_name;
use crate::app::App;
use crate::args::{Creds, Pull};
use crate::exit::{Failure, Outcome};
use crate::output::{Format, Report, Table, units};

/// An image that was pulled.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Pulled {
    image: String,
    image_ref: String,
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
    let names = args.images.iter().map(|text| image_name(text)).collect::<Outcome<Vec<_>>>()?;
    let auth = args.creds.as_ref().map(|creds| credential(creds, &names)).transpose()?;
    let backend = app.backend().await?;
    app.note_unprivileged(backend);
    let service = backend.service();
    let pulls = names.into_iter().map(|name| pull(app, service.as_ref(), name, auth.clone()));
    let (mut images, mut failures) = (Vec::new(), Vec::new());
    for result in futures::future::join_all(pulls).await {
        match result {
            Ok(pulled) => images.push(pulled),
            Err(failure) => failures.push(failure),
        }
    }
    app.progress.finish();
    let pulls = Pulls { images };
    // What scripts want of a pull is what CRI answers: the image ref, one a line.
    match app.printer.format {
        None => app.printer.lines(pulls.ids())?,
        Some(Format::Table | Format::Wide | Format::Json | Format::Yaml | Format::Name) => {
            app.printer.report(&pulls)?
        }
    }
    Failure::all(failures).map_or(Ok(()), Err)
}

async fn pull(app: &App, service: &dyn ImageService, image: String, auth: Option<RegistryAuth>) -> Outcome<Pulled> {
    let begin = Instant::now();
    let request = PullImageRequest { auth, progress: app.progress.sink(&image), ..PullImageRequest::new(&image) };
    let image_ref = service.pull_image(request).await.map_err(|error| pull_failure(&image, &error))?;
    tracing::info!("{image}: pulled in {}", units::seconds(begin.elapsed()));
    Ok(Pulled { image, image_ref })
}

/// The services name the image in their errors; where one does not, it is added.
fn pull_failure(image: &str, error: &cri_api::Error) -> Failure {
    let named = Reference::parse(image).is_ok_and(|r| error.message().contains(r.path()));
    if named {
        Failure::new(crate::exit::code_of(error.kind()), error.message())
    } else {
        Failure::call(format!("pull {image}"), error)
    }
}

/// The credential, which must be meant for one registry: the others would see it.
fn credential(creds: &Creds, names: &[String]) -> Outcome<RegistryAuth> {
    let Some((user, password)) = creds.0.expose().split_once(':').filter(|(user, _)| !user.is_empty()) else {
        return Err(Failure::usage("--creds must be USER:PASSWORD"));
    };
    let mut domains: Vec<String> = Vec::new();
    for name in names {
        let reference = Reference::parse(name).map_err(|e| Failure::usage(e.to_string()))?;
        if !domains.iter().any(|domain| domain == reference.domain()) {
            domains.push(reference.domain().to_owned());
        }
    }
    if domains.len() > 1 {
        let domains = domains.join(", ");
        return Err(Failure::usage(format!("--creds is for one registry, and the images are of several: {domains}")));
    }
    Ok(RegistryAuth::basic(user, password))
}

#[cfg(test)]
mod tests {
    use oci::Secret;

    use super::*;
    use crate::exit::Code;

    #[test]
    fn a_credential_goes_to_one_registry_and_is_not_shown() {
        let creds = |text: &str| Creds(Secret::new(text));
        let names = ["a.example/x:1".to_owned(), "a.example/y:2".to_owned()];
        let auth = credential(&creds("user:p:w"), &names).expect("taken");
        let (user, password) = auth.user_and_password().expect("both");
        assert_eq!((user.as_str(), password.expose()), ("user", "p:w"));
        for (text, names) in [
            ("s3cret", &names[..]),
            (":s3cret", &names[..]),
            ("user:s3cret", &["a.example/x:1".to_owned(), "b.example/x:1".to_owned()][..]),
        ] {
            let failure = credential(&creds(text), names).expect_err("refused");
            assert_eq!(failure.code(), Code::Usage);
            assert!(!failure.lines()[0].contains("s3cret"), "{failure:?}");
        }
    }
}
