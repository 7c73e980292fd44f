//! Check of a kubelet on this node: does its configuration name imagelet's socket for images? Reads the kubelet's command line and its
//! configuration file, and changes nothing.

use std::path::{Path, PathBuf};

use cri_grpc::Endpoint;
use manifest::yaml::{self, Value};

use super::finding::{Finding, blocking};
use crate::app::App;

const KUBELET: &str = "kubelet";
/// The socket of the package's unit.
const USUAL_SOCKET: &str = "unix:///run/imagelet/imagelet.sock";
/// Configuration files of kubelets that do not run: kubeadm's, and that of Amazon EKS.
const USUAL_FILES: [&str; 2] = ["/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet/config.json"];

/// Checks the kubelet's configuration.
pub(super) async fn check(app: &App) -> Finding {
    let ours = app.config.listen.clone().unwrap_or_else(|| USUAL_SOCKET.to_owned());
    blocking(KUBELET, move || judge(&running(Path::new("/proc")), &USUAL_FILES.map(PathBuf::from), &ours)).await
}

/// Returns the words of the command line of a running kubelet; none if no kubelet runs.
fn running(proc: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(proc) else { return Vec::new() };
    let lines = entries.filter_map(Result::ok).filter_map(|entry| {
        let is_process = entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        is_process.then(|| std::fs::read(entry.path().join("cmdline")).ok()).flatten()
    });
    let words = |line: Vec<u8>| -> Vec<String> {
        line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    };
    let is_kubelet = |words: &Vec<String>| Path::new(&words[0]).file_name().is_some_and(|name| name == "kubelet");
    lines.map(words).find(is_kubelet).unwrap_or_default()
}

/// Returns the value of a flag on a command line, the last one.
fn flag(words: &[String], name: &str) -> Option<String> {
    let mut value = None;
    for (index, word) in words.iter().enumerate() {
        let Some(rest) = word.trim_start_matches('-').strip_prefix(name).filter(|_| word.starts_with('-')) else {
            continue;
        };
        match rest.strip_prefix('=') {
            Some(text) => value = Some(text.to_owned()),
            None if rest.is_empty() => value = words.get(index + 1).cloned(),
            None => {}
        }
    }
    value
}

/// The fields of a kubelet's configuration that say where its images are.
#[derive(Default)]
struct KubeletFile {
    image: Option<String>,
    runtime: Option<String>,
}

impl KubeletFile {
    fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let documents = yaml::documents(&text).map_err(|error| error.message)?;
        let field = |name: &str| match &documents.first()?.get(name)?.value {
            Value::Text(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            _ => None,
        };
        Ok(Self { image: field("imageServiceEndpoint"), runtime: field("containerRuntimeEndpoint") })
    }
}

fn judge(words: &[String], usual: &[PathBuf], ours: &str) -> Finding {
    let named = flag(words, "config").map(PathBuf::from);
    let file = named.clone().or_else(|| usual.iter().find(|path| path.exists()).cloned());
    let of_file = match &file {
        Some(path) => match KubeletFile::read(path) {
            Ok(of_file) => of_file,
            // The path of a kubelet in a container is another file, or none, in this mount namespace.
            Err(error) => return Finding::skipped(KUBELET, format!("read {}: {error}", path.display())),
        },
        None if words.is_empty() => {
            return Finding::skipped(KUBELET, "no kubelet runs on this node, and it has no configuration file");
        }
        None => KubeletFile::default(),
    };
    let endpoint = flag(words, "image-service-endpoint")
        .or(of_file.image)
        .or_else(|| flag(words, "container-runtime-endpoint"))
        .or(of_file.runtime)
        .unwrap_or_else(|| "unix:///run/containerd/containerd.sock".to_owned());
    let place = file.map_or_else(|| "the kubelet's configuration".to_owned(), |path| path.display().to_string());
    let path = |text: &str| Endpoint::parse(text).map(|endpoint| endpoint.path().to_owned());
    match (path(&endpoint), path(ours)) {
        (Err(error), _) => {
            Finding::error(KUBELET, format!("{place}: {endpoint:?}: {error}"), format!("imageServiceEndpoint: {ours}"))
        }
        (Ok(named), Ok(own)) if named == own => match std::os::unix::net::UnixStream::connect(&own) {
            Ok(_) => Finding::ok(KUBELET, format!("its images are behind imagelet, on {ours}")),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Finding::ok(KUBELET, format!("its images are behind {ours}, which only root can ask"))
            }
            Err(error) => {
                let remedy = "systemctl enable --now imagelet-serve.socket imagelet-serve";
                Finding::error(
                    KUBELET,
                    format!("its images are behind imagelet, and {ours} does not answer: {error}"),
                    remedy,
                )
            }
        },
        _ => {
            let message = format!("its images are behind {endpoint}: imagelet does not pull them");
            let remedy =
                format!("to have imagelet pull, set imageServiceEndpoint: {ours} in {place}, and restart the kubelet");
            Finding::warning(KUBELET, message, remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    fn line(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn kubelet_is_found_and_its_flags_override_its_file() {
        let root = tempfile::tempdir().expect("a directory");
        let proc = root.path().join("proc");
        for (process, words) in
            [("1", "/sbin/init\0"), ("20", "/usr/bin/kubelet\0--config\0/k.yaml\0"), ("self", "kubelet\0")]
        {
            std::fs::create_dir_all(proc.join(process)).expect("create");
            std::fs::write(proc.join(process).join("cmdline"), words).expect("write");
        }
        assert_eq!(flag(&running(&proc), "config").as_deref(), Some("/k.yaml"));
        assert_eq!(running(&root.path().join("missing")), Vec::<String>::new());
        assert_eq!(flag(&line("kubelet --config-dir=/d --config=/a -config /b"), "config").as_deref(), Some("/b"));
        assert_eq!(flag(&line("kubelet --config"), "config"), None);

        let socket = root.path().join("imagelet.sock");
        let ours = format!("unix://{}", socket.display());
        let file = root.path().join("config.yaml");
        let write =
            |fields: &str| std::fs::write(&file, format!("kind: KubeletConfiguration\n{fields}")).expect("write");
        let judged = |words: &str| judge(&line(words), std::slice::from_ref(&file), &ours);
        let is = |finding: &Finding, result: Verdict, words: &str| {
            assert!(finding.result == result && finding.details().contains(words), "{finding:?}");
        };
        is(&judged(""), Verdict::Skipped, "no kubelet runs");
        is(&judged("kubelet"), Verdict::Warning, "behind unix:///run/containerd/containerd.sock");
        write("containerRuntimeEndpoint: unix:///run/crio/crio.sock\n");
        is(
            &judged(""),
            Verdict::Warning,
            "crio.sock: imagelet does not pull them; to have imagelet pull, set imageServiceEndpoint",
        );
        write(&format!("imageServiceEndpoint: {ours}\n"));
        is(&judged(""), Verdict::Error, "does not answer");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("listen");
        is(&judged(""), Verdict::Ok, "behind imagelet");
        write(&format!("containerRuntimeEndpoint: {ours}\n"));
        is(&judged(""), Verdict::Ok, "behind imagelet");
        is(&judged("kubelet --image-service-endpoint=unix:///other.sock"), Verdict::Warning, "unix:///other.sock");
        is(&judged("kubelet --image-service-endpoint tcp://x"), Verdict::Error, "unix socket");
        is(&judged("kubelet --config /does/not/exist"), Verdict::Skipped, "/does/not/exist");
        write("a: [\n");
        is(&judged(""), Verdict::Skipped, "config.yaml");
    }
}
