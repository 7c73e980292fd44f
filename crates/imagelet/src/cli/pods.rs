//! Converts files on the command line to requests for images. Shared by `ensure` and `explain`; `fleet` reads
//! its files with it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use agent::ensure::{ImageNeed, image_needs};
use kuberuntime::sources::FetchRequest;
use manifest::yaml::MAX_BYTES;
use manifest::{Objects, SecretStore, read_directory};

use super::manifest_files::{ManifestFile, expand};
use crate::app::App;
use crate::exit::{Code, Failure, Outcome};
use crate::wiring::node;

/// Reads all manifests and returns their image needs, in their order. Pull secrets are taken from the same manifests, and from the secrets
/// directory.
pub(super) async fn read(app: &App, given: &[PathBuf], recursive: bool) -> Outcome<Vec<ImageNeed>> {
    let panicked = |_| Failure::failed("read manifests: the reader panicked");
    let texts = texts(app, given, recursive).await?;
    let directory = app.config.credentials.secrets_directory.clone();
    let read = tokio::task::spawn_blocking(move || {
        let mut objects = parse_all(&texts)?;
        let pods = std::mem::take(&mut objects.pods);
        let mut secrets = SecretStore::default();
        secrets.add(objects);
        if let Some(directory) = directory {
            secrets.add(secrets_of(&directory)?);
        }
        Ok(pods.into_iter().flat_map(|pod| image_needs(pod, &secrets)).collect())
    });
    read.await.map_err(panicked)?
}

/// Returns the texts of all manifests, in their order.
pub(super) async fn texts(app: &App, given: &[PathBuf], recursive: bool) -> Outcome<Vec<ManifestText>> {
    let panicked = |_| Failure::failed("read manifests: the reader panicked");
    let given = given.to_vec();
    let files = tokio::task::spawn_blocking(move || expand(&given, recursive)).await.map_err(panicked)??;
    let mut texts = Vec::with_capacity(files.len());
    for file in files {
        texts.push(match file {
            ManifestFile::Url(url) => fetch(app, &url).await?,
            file => tokio::task::spawn_blocking(move || read_file(&file)).await.map_err(panicked)??,
        });
    }
    Ok(texts)
}

/// Returns the objects of the secrets directory. Unusable ones are logged; pods that need them lack these credentials.
fn secrets_of(directory: &Path) -> Outcome<Objects> {
    let read = read_directory(directory)
        .map_err(|error| Failure::new(Code::Config, format!("secretsDirectory {}: {error}", directory.display())))?;
    for problem in read.problems.iter().cloned().chain(read.duplicates()) {
        tracing::warn!(error = %problem, "secrets are left out");
    }
    Ok(read.objects)
}

/// The text of a manifest, and its name in messages.
pub(super) struct ManifestText {
    pub(super) name: String,
    pub(super) text: String,
}

/// Fetches a manifest from an address.
async fn fetch(app: &App, url: &str) -> Outcome<ManifestText> {
    let request = FetchRequest::new(url);
    let name = request.origin();
    let bytes = (node::reading(&app.config, false).options.fetch)(request).await;
    let bytes = bytes.map_err(Failure::failed)?;
    named(name, Ok(bytes))
}

/// Reads a file or standard input. Blocks.
fn read_file(file: &ManifestFile) -> Outcome<ManifestText> {
    match file {
        ManifestFile::Path(path) => named(path.display().to_string(), File::open(path).and_then(limited)),
        ManifestFile::Stdin | ManifestFile::Url(_) => named("-".to_owned(), limited(std::io::stdin().lock())),
    }
}

fn limited(reader: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn named(name: String, bytes: std::io::Result<Vec<u8>>) -> Outcome<ManifestText> {
    let text = bytes.and_then(|bytes| {
        if bytes.len() as u64 > MAX_BYTES {
            let line = format!("more than {} MiB, which no manifest has", MAX_BYTES >> 20);
            return Err(std::io::Error::other(line));
        }
        String::from_utf8(bytes).map_err(|_| std::io::Error::other("it is not UTF-8 text"))
    });
    match text {
        Ok(text) => Ok(ManifestText { name, text }),
        Err(error) => {
            let shown = if name == "-" { "standard input" } else { &name };
            Err(Failure::failed(format!("read {shown}: {error}")))
        }
    }
}

/// Returns the objects of all manifests, including at least one pod. Problems that do not affect images are logged.
fn parse_all(texts: &[ManifestText]) -> Outcome<Objects> {
    let mut objects = Objects::default();
    for ManifestText { name, text } in texts {
        objects.extend(manifest::parse(name, text).map_err(|e| Failure::failed(e.to_string()))?);
    }
    for note in &objects.notes {
        tracing::warn!(path = %note.at.file, line = note.at.line, "{}", note.message);
    }
    let file = if let [one] = texts { Some(one.name.as_str()) } else { None };
    manifest::check(&objects, file).map_err(|e| Failure::failed(e.to_string()))?;
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_their_pod_and_container() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, uid: u1, annotations: {k: v}}\nspec:\n  \
                    containers: [{name: main, image: 'a:1', imagePullPolicy: Never}]\n  \
                    volumes: [{name: data, image: {reference: 'b:2'}}]\n  \
                    imagePullSecrets: [{name: regcred}, {name: lost}]\n  priority: 7\n---\n\
                    apiVersion: v1\nkind: Secret\nmetadata: {name: regcred, namespace: shop}\n";
        let mut objects = manifest::parse("f", text).expect("parses");
        let pods = std::mem::take(&mut objects.pods);
        let mut store = SecretStore::default();
        store.add(objects);
        let requests: Vec<_> =
            pods.into_iter().flat_map(|pod| image_needs(pod, &store)).map(|need| need.request()).collect();
        let about: Vec<_> = requests.iter().map(|r| r.object.clone().expect("set").field_path).collect();
        assert_eq!(about, ["", "spec.containers{main}"]);
        let main = &requests[1];
        assert_eq!((main.image.as_str(), main.policy.as_str()), ("a:1", "Never"));
        assert_eq!((main.pod.namespace.as_str(), main.pod.uid.as_str()), ("shop", "u1"));
        let secrets: Vec<_> = main.secrets.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(
            (secrets.as_slice(), main.missing_secrets.as_slice()),
            (["regcred"].as_slice(), ["lost".to_owned()].as_slice())
        );
        assert_eq!((main.priority, main.service_account.as_ref().map(|a| a.name.as_str())), (7, Some("default")));
        assert_eq!(main.pod.annotations.get("k").map(String::as_str), Some("v"));
    }

    #[test]
    fn files_that_cannot_be_read_are_named() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("bin"), [0xff, 0xfe]).expect("written");
        let cases = [(path("none"), "No such file"), (path("bin"), "not UTF-8"), (path(""), "Is a directory")];
        for (file, want) in cases {
            let Err(failure) = read_file(&ManifestFile::Path(file.clone())) else { panic!("{want}") };
            let line = &failure.lines()[0];
            assert!(line.starts_with(&format!("read {}: ", file.display())) && line.contains(want), "{line}");
        }
    }
}
