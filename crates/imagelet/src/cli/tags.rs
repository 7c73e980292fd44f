//! `imagelet tags`: the tags of repositories in their registries. `pull --all-tags` calls [`remote_tags`] as well.

use credentials::Requester;
use cri_api::Kind;
use oci::{Reference, RegistryAuth};
use serde::Serialize;

use crate::app::App;
use crate::args::Tags;
use crate::exit::{Failure, Outcome, chain};
use crate::images::registries;
use crate::manager;
use crate::output::{Report, Table};

/// The tags of a repository.
#[derive(Serialize)]
struct RepositoryTags {
    repository: String,
    tags: Vec<String>,
}

#[derive(Serialize)]
struct TagLists {
    repositories: Vec<RepositoryTags>,
}

impl Report for TagLists {
    fn table(&self, _: bool, _: bool) -> Table {
        let mut table = Table::new(&["REPOSITORY", "TAG"]);
        for RepositoryTags { repository, tags } in &self.repositories {
            tags.iter().for_each(|tag| table.row([repository.clone(), tag.clone()]));
        }
        table
    }

    fn names(&self) -> Vec<String> {
        let names = |list: &RepositoryTags| -> Vec<String> {
            list.tags.iter().map(|tag| format!("{}:{tag}", list.repository)).collect()
        };
        self.repositories.iter().flat_map(names).collect()
    }

    /// Returns the tags alone, which scripts want from `-q`.
    fn ids(&self) -> Vec<String> {
        self.repositories.iter().flat_map(|list| list.tags.clone()).collect()
    }
}

pub(super) async fn run(app: &App, args: &Tags) -> Outcome {
    let auth =
        args.creds.as_ref().map(|creds| super::typed_credential::credential(creds, &args.repositories)).transpose()?;
    let parse = |text: &String| Reference::parse(text).map_err(|error| Failure::usage(format!("{text:?}: {error}")));
    let names = args.repositories.iter().map(parse).collect::<Outcome<Vec<_>>>()?;
    let lists = names.iter().map(|name| remote_tags(app, name, auth.clone()));
    let (mut repositories, mut failures) = (Vec::new(), Vec::new());
    for (name, tags) in names.iter().zip(futures::future::join_all(lists).await) {
        match tags {
            Ok(tags) => repositories.push(RepositoryTags { repository: name.repository(), tags }),
            Err(failure) => failures.push(failure),
        }
    }
    let lists = TagLists { repositories };
    match app.printer.format {
        None if names.len() == 1 => app.printer.lines(lists.ids())?,
        None => app.printer.lines(lists.names())?,
        Some(_) => app.printer.report(&lists)?,
    }
    Failure::all(failures).map_or(Ok(()), Err)
}

/// Returns the tags of a repository in its registry, with this credential, or with those of the user and of the node.
pub(super) async fn remote_tags(app: &App, name: &Reference, auth: Option<RegistryAuth>) -> Outcome<Vec<String>> {
    let registries = registries(&app.config, &app.environment.proxies);
    let failed = |error: &cri_api::Error| Failure::call(format!("tags of {}", name.repository()), error);
    if auth.is_some() {
        return registries.tags(name, auth).await.map_err(|error| failed(&error));
    }
    let keyring = manager::user_keyring(&app.config, &app.environment).await?;
    let found = keyring.candidates(name, &Requester::default()).await;
    let found = found.map_err(|error| Failure::failed(format!("{}: {}", name.repository(), chain(&error))))?;
    for note in &found.notes {
        tracing::warn!("{}: {note}", name.repository());
    }
    let mut refused = None;
    for candidate in found.candidates {
        match registries.tags(name, Some(candidate.auth)).await {
            Ok(tags) => return Ok(tags),
            Err(error) if matches!(error.kind(), Kind::Unauthenticated | Kind::PermissionDenied) => {
                tracing::debug!(source = %candidate.source, %error, "credential refused");
                refused = Some(error);
            }
            Err(error) => return Err(failed(&error)),
        }
    }
    match refused {
        Some(error) => Err(failed(&error)),
        None => registries.tags(name, None).await.map_err(|error| failed(&error)),
    }
}
