//! The sandbox image in the configuration file of a containerd, for containerd 2, whose CRI status does not report it. The command line of
//! the process behind the socket names the file. Reads files only. Called by the binary.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;
use toml::{Table, Value};

/// The file that containerd reads if its command line names no other.
const DEFAULT_FILE: &str = "/etc/containerd/config.toml";
/// Largest number of files that are read: imports may import more.
const MAX_FILES: usize = 64;

/// Returns the sandbox image that the configuration of the containerd at `socket` names. `None`: it names none, so that containerd uses its
/// built-in default, or the process behind the socket is not containerd.
///
/// # Errors
/// The process is unknown, or a file cannot be read.
pub async fn configured_sandbox_image(socket: &Path) -> io::Result<Option<String>> {
    let peer = UnixStream::connect(socket).await?.peer_cred()?.pid().filter(|pid| *pid > 0);
    let peer = peer.ok_or_else(|| io::Error::other(format!("the process behind {} is unknown", socket.display())))?;
    let read = move || {
        let file = named_file(&command_line(peer)?);
        let mut files = BTreeSet::new();
        file.map_or(Ok(None), |file| read_file(&file, &mut files))
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}

fn command_line(process: i32) -> io::Result<Vec<String>> {
    let words = std::fs::read(format!("/proc/{process}/cmdline"))?;
    Ok(words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// Returns the configuration file that a command line of containerd names; `None` if the program is not containerd.
fn named_file(words: &[String]) -> Option<PathBuf> {
    let (program, arguments) = words.split_first()?;
    if Path::new(program).file_name()? != "containerd" {
        return None;
    }
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else { continue };
        match flag.split_once('=') {
            Some(("c" | "config", value)) => return Some(PathBuf::from(value)),
            None if flag == "c" || flag == "config" => return arguments.next().map(PathBuf::from),
            _ => {}
        }
    }
    Some(PathBuf::from(DEFAULT_FILE))
}

/// Returns the sandbox image that a file or its imports name; imports override the file.
fn read_file(file: &Path, files: &mut BTreeSet<PathBuf>) -> io::Result<Option<String>> {
    let about = |error: &dyn std::fmt::Display| io::Error::other(format!("read {}: {error}", file.display()));
    if files.len() >= MAX_FILES || !files.insert(file.to_owned()) {
        return Ok(None);
    }
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(about(&error)),
    };
    let table: Table = text.parse().map_err(|error: toml::de::Error| about(&error.message()))?;
    let mut image = image_of(&table);
    let imports = table.get("imports").and_then(Value::as_array);
    for import in imports.into_iter().flatten().filter_map(Value::as_str) {
        for imported in matching(&file.parent().unwrap_or(Path::new("/")).join(import))? {
            image = read_file(&imported, files)?.or(image);
        }
    }
    Ok(image)
}

/// Returns the sandbox image in one file, in the forms of the versions 3, 2 and 1 of containerd's configuration.
fn image_of(table: &Table) -> Option<String> {
    let plugins = table.get("plugins")?;
    let images =
        plugins.get("io.containerd.cri.v1.images").and_then(|images| images.get("pinned_images")?.get("sandbox"));
    let of_cri = |name: &str| plugins.get(name).and_then(|cri| cri.get("sandbox_image"));
    let image = images.or_else(|| of_cri("io.containerd.grpc.v1.cri")).or_else(|| of_cri("cri"))?;
    image.as_str().filter(|image| !image.is_empty()).map(str::to_owned)
}

/// Returns the files that an import names, in the order of their names. The file name may have one `*`.
fn matching(import: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(directory), Some(name)) = (import.parent(), import.file_name().and_then(|name| name.to_str())) else {
        return Ok(Vec::new());
    };
    let Some((start, end)) = name.split_once('*') else { return Ok(vec![import.to_owned()]) };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_names_the_file() {
        let named = |line: &str| named_file(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for (line, file) in [
            ("/usr/bin/containerd", DEFAULT_FILE),
            ("containerd --log-level info", DEFAULT_FILE),
            ("/bin/containerd -c /a.toml -l info", "/a.toml"),
            ("containerd --config=/b.toml", "/b.toml"),
            ("containerd -l info --config /c.toml", "/c.toml"),
        ] {
            assert_eq!(named(line).as_deref(), Some(Path::new(file)), "{line}");
        }
        assert_eq!(named("/usr/bin/socat -c /a.toml"), None);
        assert_eq!(named("containerd -c"), None);
    }

    #[test]
    fn image_is_read_from_every_version_and_imports_override() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("write");
            path
        };
        let read = |file: &Path| read_file(file, &mut BTreeSet::new()).map_err(|error| error.to_string());
        let three =
            write("3.toml", "version = 3\n[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = 'p:3'\n");
        let two = write("2.toml", "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\nsandbox_image = 'p:2'\n");
        let one = write("1.toml", "[plugins.cri]\nsandbox_image = 'p:1'\n");
        let none = write("0.toml", "version = 3\n");
        let found = [&three, &two, &one, &none, &directory.path().join("missing")].map(|file| read(file));
        let image = |name: &str| Ok(Some(name.to_owned()));
        assert_eq!(found, [image("p:3"), image("p:2"), image("p:1"), Ok(None), Ok(None)]);
        std::fs::create_dir(directory.path().join("conf.d")).expect("create");
        write("conf.d/20.toml", "[plugins.cri]\nsandbox_image = 'p:20'\n");
        write("conf.d/10.toml", "[plugins.cri]\nsandbox_image = 'p:10'\n");
        write("conf.d/30.conf", "[plugins.cri]\nsandbox_image = 'p:30'\n");
        let importing = |imports: &str| {
            write("main.toml", &format!("imports = [{imports}]\n[plugins.cri]\nsandbox_image = 'p:1'\n"))
        };
        assert_eq!(read(&importing("'conf.d/*.toml'")), image("p:20"));
        // A file that imports itself ends.
        assert_eq!(read(&importing("'main.toml', '/nowhere/*.toml'")), image("p:1"));
        let broken = write("broken.toml", "version = \n");
        assert!(read(&broken).is_err_and(|error| error.starts_with(&format!("read {}: ", broken.display()))));
    }
}
