//! Pulls an image with progress and the credentials of docker, lists its root directory, and prints one of its files:
//! `pull-and-read ROOT IMAGE PATH`. Depends on the published crates only; a test builds it from the packages.

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;

use imagelet_engine::{DockerConfig, Engine, LayerState, ProxySettings, PullEvent, PullRequest, Reference};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [root, image, path] = &arguments[..] else { return Err("usage: pull-and-read ROOT IMAGE PATH".into()) };
    let reference: Reference = image.parse()?;

    let proxy = ProxySettings::from_lookup(|name| std::env::var(name).ok());
    let engine = Engine::builder(root).proxy(proxy).open().await?;
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let docker = DockerConfig::new(home.join(".docker/config.json"));
    let helpers = docker.with_helpers(std::env::var_os("PATH").unwrap_or_default(), std::env::vars_os());
    let request = PullRequest::new(reference.clone())
        .with_credential(helpers.credential(&reference).await?)
        .on_progress(|event| {
            if let PullEvent::Layer { digest, state: LayerState::Done } = event {
                eprintln!("{digest} done");
            }
        });
    let pulled = engine.pull(request).await?;
    eprintln!("{} is {}, {} bytes fetched", pulled.reference, pulled.image_id, pulled.fetched_bytes);

    let rootfs = engine.rootfs(pulled.image_id).await?;
    for entry in rootfs.read_dir("/").await? {
        eprintln!("{:o} {:>10} {}", entry.metadata.mode, entry.metadata.size, entry.name.display());
    }
    rootfs.copy_to(path, std::io::stdout()).await?.flush()?;
    drop(rootfs);
    engine.shutdown().await;
    Ok(())
}
