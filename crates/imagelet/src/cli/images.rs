//! `imagelet images`: what is there.

use cri_api::{Image, ImageFilter, ImageService, ImageSpec};
use oci::Reference;
use serde::Serialize;

use super::watch::ImageLists;
use crate::app::App;
use crate::args::Images;
use crate::exit::{Failure, Outcome};
use crate::output::{Report, Table, units};

/// The images of `-o json`, as crictl shapes them.
#[derive(Serialize)]
pub(super) struct ImageList {
    pub(super) images: Vec<Image>,
    /// The names that were asked for; empty for all.
    #[serde(skip)]
    pub(super) wanted: Vec<Wanted>,
}

/// A name or id that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The beginning of an image id, in hex digits.
    Id(String),
    /// A name of an image.
    Name(String),
    /// Every name of a repository.
    Repository(String),
}

impl Wanted {
    /// The meanings of a word on the command line: hex digits can be an id and a name.
    pub(super) fn parse(text: &str) -> Outcome<Vec<Self>> {
        let mut meanings = Vec::new();
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        if hex.len() >= 3 && hex.len() <= 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
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

/// `repository` and `:tag` or `@digest`.
fn repository_and_rest(name: &str) -> (&str, &str) {
    let end = name.find('@').or_else(|| {
        // A colon before the last slash belongs to a port.
        name.rfind(':').filter(|colon| name.rfind('/').is_none_or(|slash| slash < *colon))
    });
    name.split_at(end.unwrap_or(name.len()))
}

impl ImageList {
    /// Keeps what was asked for.
    pub(super) fn select(mut images: Vec<Image>, wanted: Vec<Wanted>) -> Self {
        if !wanted.is_empty() {
            images.retain(|image| {
                let mut names = image.repo_tags.iter().chain(&image.repo_digests);
                wanted.iter().any(|w| w.is_id_of(image)) || names.any(|name| wanted.iter().any(|w| w.is_name(name)))
            });
        }
        images.sort_by(|a, b| name_of(a).cmp(name_of(b)).then_with(|| a.id.cmp(&b.id)));
        Self { images, wanted }
    }

    /// The tags of an image that are shown: those that were asked for.
    fn tags<'a>(&'a self, image: &'a Image) -> Vec<&'a str> {
        let by_name = |tag: &&String| self.wanted.iter().any(|w| w.is_name(tag));
        let all = self.wanted.is_empty() || !image.repo_tags.iter().any(|tag| by_name(&tag));
        image.repo_tags.iter().filter(|tag| all || by_name(tag)).map(String::as_str).collect()
    }
}

/// The first name of an image, or its id.
pub(super) fn name_of(image: &Image) -> &str {
    image.repo_tags.first().or(image.repo_digests.first()).unwrap_or(&image.id)
}

/// The image that a text means, for those who want to know of it or take it away. A service answers that an image is absent
/// where it must not be used by this name, or has lost a layer; on the list it is all the same.
pub(super) async fn look_up(service: &dyn ImageService, text: &str) -> cri_api::Result<Option<Image>> {
    let spec = ImageSpec::new(text);
    if let Some(image) = service.image_status(&spec, false).await?.image {
        return Ok(Some(image));
    }
    let listed = service.list_images(Some(&ImageFilter { image: Some(spec) })).await?;
    Ok(listed.into_iter().next())
}

/// Repository, tag and digest columns of every name of an image, at least one row.
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
        let titles = ["IMAGE", "TAG", "IMAGE ID", "SIZE", "+DIGEST", "+USER", "+PINNED"];
        let mut table = Table::with_wide(wide, &titles);
        for image in &self.images {
            for [repository, tag, digest] in rows(image, &self.tags(image)) {
                let (id, size) = (units::id(&image.id, whole), units::bytes(image.size));
                let user = image.uid.map_or_else(|| image.username.clone(), |uid| uid.to_string());
                table.row([repository, tag, id, size, digest, user, image.pinned.to_string()]);
            }
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
    let (mut lists, mut last) = (ImageLists::new(app, args.watch.watch), None);
    while let Some(images) = lists.next().await? {
        let list = ImageList::select(images, wanted.clone());
        if last.as_ref() != Some(&list.images) {
            app.printer.report(&list)?;
        }
        last = Some(list.images);
    }
    Ok(())
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
