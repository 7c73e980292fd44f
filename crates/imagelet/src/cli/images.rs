//! `imagelet images`: lists the images that are present.

use std::collections::HashMap;

use cri_api::{Image, ImageFilter, ImageService, ImageSpec};
use jiff::Timestamp;
use oci::Reference;
use serde::Serialize;

use super::image_filter::{Details, Filters, Span, details, repository_and_rest};
use super::watch::ImageLists;
use crate::app::App;
use crate::args::{Images, SortKey};
use crate::exit::{Failure, Outcome};
use crate::output::{Format, Report, Table, units};

/// The images of `-o json`, in the form of crictl.
#[derive(Serialize)]
pub(super) struct ImageList {
    pub(super) images: Vec<Image>,
    /// The requested names; empty for all.
    #[serde(skip)]
    pub(super) wanted: Vec<Wanted>,
    /// The filters of `-f`.
    #[serde(skip)]
    filters: Filters,
    /// Facts by image id; only those that a filter or a column needs.
    #[serde(skip)]
    details: HashMap<String, Details>,
    #[serde(skip)]
    sort: Option<SortKey>,
    /// True if digests are a column of the narrow table as well.
    #[serde(skip)]
    digests: bool,
}

/// A requested name or id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A prefix of an image id, in hex digits.
    Id(String),
    /// A name of an image.
    Name(String),
    /// Every name of a repository.
    Repository(String),
}

impl Wanted {
    /// Returns the meanings of an argument: hex digits can be both an id and a name.
    pub(super) fn parse(text: &str) -> Outcome<Vec<Self>> {
        let mut meanings = Vec::new();
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        if hex.len() >= SHORTEST_ID && hex.len() <= 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            meanings.push(Self::Id(hex.to_owned()));
        }
        match Reference::parse(text) {
            Ok(r) if r.tag().is_none() && r.digest().is_none() => meanings.push(Self::Repository(r.repository())),
            Ok(r) => meanings.push(Self::Name(r.canonical().to_string())),
            Err(_) if !meanings.is_empty() => {}
            Err(error) => return Err(Failure::usage(format!("{text:?} is neither a name nor an id: {error}"))),
        }
        Ok(meanings)
    }

    fn is_id_of(&self, image: &Image) -> bool {
        matches!(self, Self::Id(hex) if image.id.strip_prefix("sha256:").unwrap_or(&image.id).starts_with(hex.as_str()))
    }

    fn is_name(&self, name: &str) -> bool {
        match self {
            Self::Id(_) => false,
            Self::Name(wanted) => name == wanted,
            Self::Repository(wanted) => repository_and_rest(name).0 == wanted,
        }
    }
}

impl ImageList {
    /// Keeps the requested images.
    pub(super) fn select(mut images: Vec<Image>, wanted: Vec<Wanted>) -> Self {
        if !wanted.is_empty() {
            images.retain(|image| {
                let mut names = image.repo_tags.iter().chain(&image.repo_digests);
                wanted.iter().any(|w| w.is_id_of(image)) || names.any(|name| wanted.iter().any(|w| w.is_name(name)))
            });
        }
        images.sort_by(|a, b| name_of(a).cmp(name_of(b)).then_with(|| a.id.cmp(&b.id)));
        Self { images, wanted, filters: Filters::default(), details: HashMap::new(), sort: None, digests: false }
    }

    /// Keeps the images that match the filters.
    fn filter(mut self, filters: Filters, span: Span) -> Self {
        let unknown = Details::default();
        self.images.retain(|image| filters.fit(image, self.details.get(&image.id).unwrap_or(&unknown), span));
        Self { filters, ..self }
    }

    /// Sorts the images; those with the same key keep their order.
    fn sort(mut self, sort: Option<SortKey>) -> Self {
        let created = |image: &Image| self.details.get(&image.id).and_then(|details| details.created);
        match sort {
            None => {}
            // The newest first, as in podman; those without a time last.
            Some(SortKey::Created) => self.images.sort_by_key(|image| std::cmp::Reverse(created(image))),
            Some(SortKey::Id) => self.images.sort_by(|a, b| a.id.cmp(&b.id)),
            Some(SortKey::Size) => self.images.sort_by_key(|image| image.size),
            Some(SortKey::Repository) => self.images.sort_by_key(|image| split_name(image).0),
            Some(SortKey::Tag) => self.images.sort_by_key(|image| split_name(image).1),
        }
        Self { sort, ..self }
    }

    /// Returns the displayed tags of an image: the requested ones.
    fn tags<'a>(&'a self, image: &'a Image) -> Vec<&'a str> {
        let names = !self.wanted.is_empty() || self.filters.choose_names();
        let by_name = |tag: &&String| self.wanted.iter().any(|w| w.is_name(tag)) || self.filters.mean(tag);
        let all = !names || !image.repo_tags.iter().any(|tag| by_name(&tag));
        image.repo_tags.iter().filter(|tag| all || by_name(tag)).map(String::as_str).collect()
    }
}

/// Returns the first name of an image, or its id.
pub(super) fn name_of(image: &Image) -> &str {
    image.repo_tags.first().or(image.repo_digests.first()).unwrap_or(&image.id)
}

/// Returns repository and tag of the first name of an image.
fn split_name(image: &Image) -> (String, String) {
    let (repository, rest) = repository_and_rest(name_of(image));
    (repository.to_owned(), rest.to_owned())
}

/// Returns the image that a text selects, for inspection or removal. A service reports an image as absent if it must not be used by this
/// name, or has lost a layer; the list still contains it. The list has more images than this one: those of a repository, or all of them if
/// a runtime ignores filters.
pub(super) async fn find(service: &dyn ImageService, text: &str) -> cri_api::Result<Option<Image>> {
    let spec = ImageSpec::new(text);
    if let Some(image) = service.image_status(&spec, false).await?.image {
        return Ok(Some(image));
    }
    let listed = service.list_images(Some(&ImageFilter { image: Some(spec) })).await?;
    let name = oci::Reference::parse(text).map(|reference| reference.canonical().to_string());
    let is_named = |image: &&Image| {
        let mut names = image.repo_tags.iter().chain(&image.repo_digests);
        name.as_ref().is_ok_and(|wanted| names.any(|name| name == wanted))
    };
    if let Some(image) = listed.iter().find(is_named) {
        return Ok(Some(image.clone()));
    }
    let hex = text.strip_prefix("sha256:").unwrap_or(text);
    let mut by_id = listed.into_iter().filter(|image| Wanted::Id(hex.to_owned()).is_id_of(image));
    let image = by_id.next().filter(|_| hex.len() >= SHORTEST_ID);
    Ok(image.filter(|_| by_id.next().is_none()))
}

/// Finds the image that an operation names. A repository without a tag means its only tag, if it has no tag `latest`.
pub(super) async fn find_only(service: &dyn ImageService, operation: &str, text: &str) -> Outcome<Image> {
    let failed = |error: cri_api::Error| Failure::call(format!("{operation} {text}"), &error);
    if let Some(image) = find(service, text).await.map_err(failed)? {
        return Ok(image);
    }
    let is_repository = |wanted: &Wanted| matches!(wanted, Wanted::Repository(_));
    let wanted: Vec<Wanted> = Wanted::parse(text)?.into_iter().filter(is_repository).collect();
    let mut candidates = Vec::new();
    if !wanted.is_empty() {
        for image in service.list_images(None).await.map_err(failed)? {
            let is_wanted = |name: &&String| wanted.iter().any(|wanted| wanted.is_name(name));
            let tags: Vec<String> = image.repo_tags.iter().filter(is_wanted).cloned().collect();
            let digests = || image.repo_digests.iter().filter(is_wanted).cloned().collect();
            let names: Vec<String> = if tags.is_empty() { digests() } else { tags };
            candidates.extend(names.into_iter().map(|name| (name, image.clone())));
        }
    }
    candidates.sort_by(|a, b| a.0.cmp(&b.0));
    match candidates.as_slice() {
        [] => Err(Failure::failed(format!("no such image: {text}"))),
        [(name, image)] => {
            tracing::info!("{text} has one tag: {name}");
            Ok(image.clone())
        }
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
            Err(Failure::failed(format!("{operation} {text}: name one of {}", names.join(", "))))
        }
    }
}

/// Minimum number of digits of an id.
const SHORTEST_ID: usize = 3;

/// Returns repository, tag and digest columns of every name of an image, at least one row.
fn rows(image: &Image, tags: &[&str]) -> Vec<[String; 3]> {
    let digest_of = |repository: &str| {
        let digest = image.repo_digests.iter().map(|d| repository_and_rest(d)).find(|(r, _)| *r == repository);
        digest.map(|(_, rest)| rest.trim_start_matches('@').to_owned()).unwrap_or_else(|| "<none>".to_owned())
    };
    let mut rows: Vec<[String; 3]> = Vec::new();
    for tag in tags {
        let (repository, rest) = repository_and_rest(tag);
        rows.push([repository.to_owned(), rest.trim_start_matches(':').to_owned(), digest_of(repository)]);
    }
    if rows.is_empty() {
        let repository = image.repo_digests.first().map_or("<none>", |d| repository_and_rest(d).0);
        rows.push([repository.to_owned(), "<none>".to_owned(), digest_of(repository)]);
    }
    rows
}

impl Report for ImageList {
    fn table(&self, wide: bool, whole: bool) -> Table {
        let rows = |image| rows(image, &self.tags(image)).into_iter().map(move |row| (row, image));
        let mut rows: Vec<([String; 3], &Image)> = self.images.iter().flat_map(rows).collect();
        match self.sort {
            Some(SortKey::Repository) => rows.sort_by(|a, b| a.0[0].cmp(&b.0[0])),
            Some(SortKey::Tag) => rows.sort_by(|a, b| a.0[1].cmp(&b.0[1])),
            _ => {}
        }
        if self.digests && !wide {
            let mut table = Table::new(&["IMAGE", "TAG", "DIGEST", "IMAGE ID", "ON DISK"]);
            for ([repository, tag, digest], image) in rows {
                table.row([repository, tag, digest, units::id(&image.id, whole), units::bytes(image.size)]);
            }
            return table;
        }
        let titles = ["IMAGE", "TAG", "IMAGE ID", "ON DISK", "+DIGEST", "+USER", "+CREATED", "+PINNED"];
        let mut table = Table::with_wide(wide, &titles);
        for ([repository, tag, digest], image) in rows {
            let (id, size) = (units::id(&image.id, whole), units::bytes(image.size));
            let user = image.uid.map_or_else(|| image.username.clone(), |uid| uid.to_string());
            let created = units::time(self.details.get(&image.id).and_then(|details| details.created));
            table.row([repository, tag, id, size, digest, user, created, image.pinned.to_string()]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        let tags_of = |image: &Image| -> Vec<String> {
            let tags: Vec<String> = self.tags(image).into_iter().map(str::to_owned).collect();
            if tags.is_empty() { vec![name_of(image).to_owned()] } else { tags }
        };
        self.images.iter().flat_map(tags_of).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.images.iter().map(|image| image.id.clone()).collect()
    }
}

pub(super) async fn run(app: &App, args: &Images) -> Outcome {
    let mut wanted = Vec::new();
    for text in &args.images {
        wanted.extend(Wanted::parse(text)?);
    }
    let filters = Filters::parse(&args.list.filters, Timestamp::now())?;
    let is_wide = matches!(app.printer.format, Some(Format::Wide)) && !app.printer.quiet;
    let needs_details = is_wide || args.list.sort == Some(SortKey::Created) || filters.need_details();
    let (mut lists, mut last) = (ImageLists::new(app, args.watch.watch), None);
    while let Some(images) = lists.next().await? {
        if last.as_ref() == Some(&images) {
            continue;
        }
        let mut list = ImageList::select(images.clone(), wanted.clone());
        last = Some(images);
        if needs_details {
            list.details = details(app.images().await?, &list.images).await;
        }
        let span = span(app, &filters).await?;
        list.digests = args.list.digests;
        app.printer.report(&list.filter(filters.clone(), span).sort(args.list.sort))?;
    }
    Ok(())
}

/// Returns the range of times that `before` and `since` select.
async fn span(app: &App, filters: &Filters) -> Outcome<Span> {
    let created = async |names: &[String]| {
        let mut times = Vec::new();
        for name in names {
            let service = app.service().await?;
            let found =
                find(&*service, name).await.map_err(|error| Failure::call(format!("filter by {name}"), &error))?;
            let image = found.ok_or_else(|| Failure::failed(format!("no such image: {name}")))?;
            let details = details(app.images().await?, std::slice::from_ref(&image)).await;
            let time = details.get(&image.id).and_then(|details| details.created);
            times.push(time.ok_or_else(|| Failure::failed(format!("{name} does not say when it was created")))?);
        }
        Ok::<_, Failure>(times)
    };
    let (after, before) = (created(&filters.since).await?, created(&filters.before).await?);
    Ok(Span { after: after.into_iter().max(), before: before.into_iter().min() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(n: u8, tags: &[&str], digests: &[&str]) -> Image {
        Image {
            id: oci::Digest::sha256(&[n]).to_string(),
            repo_tags: tags.iter().map(|&t| t.to_owned()).collect(),
            repo_digests: digests.iter().map(|&d| d.to_owned()).collect(),
            size: 4_270_000,
            ..Image::default()
        }
    }

    fn store() -> Vec<Image> {
        let digest = oci::Digest::sha256(b"m");
        vec![
            image(
                1,
                &["quay.io/a/b:1", "quay.io/a/b:2", "docker.io/library/busybox:1"],
                &[&format!("quay.io/a/b@{digest}")],
            ),
            image(2, &[], &[&format!("h:5000/x@{digest}")]),
            image(3, &[], &[]),
        ]
    }

    fn shown(words: &[&str], wide: bool) -> Vec<Vec<String>> {
        let wanted = words.iter().flat_map(|w| Wanted::parse(w).expect("parses")).collect();
        let text = ImageList::select(store(), wanted).table(wide, false).render();
        text.lines().skip(1).map(|l| l.split_whitespace().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn one_row_per_tag() {
        let id = |n: u8| oci::Digest::sha256(&[n]).short().to_owned();
        let rows = shown(&[], false);
        let want = [
            vec!["h:5000/x".to_owned(), "<none>".into(), id(2), "4.27MB".into()],
            vec!["quay.io/a/b".to_owned(), "1".into(), id(1), "4.27MB".into()],
            vec!["quay.io/a/b".to_owned(), "2".into(), id(1), "4.27MB".into()],
            vec!["docker.io/library/busybox".to_owned(), "1".into(), id(1), "4.27MB".into()],
            vec!["<none>".to_owned(), "<none>".into(), id(3), "4.27MB".into()],
        ];
        assert_eq!(rows, want);
        assert!(shown(&[], true)[1][4].starts_with("sha256:"));
    }

    #[test]
    fn words_select_by_name_repository_and_id() {
        let count = |words: &[&str]| shown(words, false).len();
        assert_eq!(count(&["quay.io/a/b:1"]), 1);
        assert_eq!(count(&["quay.io/a/b"]), 2);
        assert_eq!(count(&["busybox"]), 1);
        assert_eq!(count(&["busybox:2"]), 0);
        assert_eq!(count(&["h:5000/x"]), 1);
        assert_eq!(count(&[&format!("h:5000/x@{}", oci::Digest::sha256(b"m"))]), 1);
        let id = oci::Digest::sha256(&[1]);
        assert_eq!(count(&[&id.to_string()]), 3);
        assert_eq!(count(&[id.short()]), 3);
        assert!(Wanted::parse("Not A Name").is_err());
    }
}
