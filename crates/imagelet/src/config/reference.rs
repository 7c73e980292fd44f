//! The reference page of the configuration, `docs/configuration.md`, made from the settings. Called by `imagelet config --reference` and by the test that compares.

use std::fmt::Write as _;

use super::setting::{Group, SETTINGS};

const HEAD: &str = "\
# Configuration
<!-- Written by `imagelet config --reference`; a test compares. Change crates/imagelet/src/config/settings/ instead. -->

Defaults, then a kubelet's configuration file (`--kubelet-config`), then `/etc/imagelet/config.yaml` (or `--config FILE`), then
its drop-ins, then variables, then flags: the later word counts. `imagelet config print` shows what is in force and where each value came
from. Durations are Go's (`90s`, `2m30s`), sizes are numbers of bytes or have a suffix (`64Gi`). In the file, relative paths
count from the file's directory, and a dot in a field's name goes into a map:

```yaml
apiVersion: imagelet.dev/v1alpha1
kind: ImageletConfiguration
imagePullBackOff:
  max: 2m
```

Drop-ins are the files `*.yaml`, `*.yml` and `*.conf` of the directory that has the configuration file's name and `.d`
(`/etc/imagelet/config.yaml.d`), or of `--config-dir DIR`, as a kubelet has them: whole files with `apiVersion` and `kind`, in the order of their
names. A later file counts more; lists and `evictionHard` take the place of earlier ones, other maps are merged by field.

| command | what it does |
|---|---|
| `imagelet config` | writes the values in force as a configuration file |
| `imagelet config print` | lists them with their places; `-o wide`, `json`, `yaml`. Secrets are never shown |
| `imagelet config check [FILE]` | reads a file and its drop-ins, and reports every error at once; exit code 64 |
| `imagelet config schema` | writes the JSON schema of the file; [configuration.schema.json](configuration.schema.json) is a copy |
| `imagelet config migrate --from-kubelet FILE` | writes a configuration from a kubelet's, and lists what it leaves out, and why |

An editor with a YAML language server checks a file that begins with `# yaml-language-server: $schema=configuration.schema.json`.

An unknown field, a bad value or a contradiction is an error (exit code 64) that names the place, and nothing is done. So is an
`IMAGELET_…` variable that looks like one of ours and is none; one that looks like nothing is a warning. A field, flag or variable of a
setting that was removed is refused with the rule that replaced it.

## Reload
On SIGHUP (`systemctl reload imagelet`) a running `run` or `serve` reads its configuration again. Settings with *yes* in the column *reload* take their
new value at once, also for pulls that wait and go on; the log has a line `configuration: FIELD: OLD → NEW` for each. Any other setting that has changed is named in a
warning and needs a restart. Where the new configuration is wrong, every error is logged, and the old one stays in force.
Files that settings name need no reload, but for docker's credentials, which are otherwise read again after five minutes: hosts.toml, the signature policy,
manifests, documents and secrets are read when they change. The configuration of credential providers is read at the start.

## What the defaults depend on
*Agent* below means a process that stays: `imagelet run`, and `imagelet serve`, which pulls when it is asked to. *One-shot* is a
command such as `imagelet ensure`. `run` has the kubelet's limit on the rate of pulls, and five of them side by side; a one-shot
command pulls everything at the same time and without a limit, because a person waits for it.

## A kubelet's configuration file
`--kubelet-config FILE` takes a KubeletConfiguration (kubelet.config.k8s.io/v1beta1). These fields count, with the kubelet's
meaning, zero values included: `containerRuntimeEndpoint`, `imageServiceEndpoint`, `runtimeRequestTimeout`,
`serializeImagePulls`, `maxParallelImagePulls`, `registryPullQPS`, `registryBurst`, `maxPods`,
`imagePullCredentialsVerificationPolicy`, `preloadedImagesVerificationAllowlist`, `imageGCHighThresholdPercent`,
`imageGCLowThresholdPercent`, `imageMinimumGCAge`, `imageMaximumGCAge`, `nodeStatusMaxImages`, `evictionHard` (what is about images
and their disk), `mergeDefaultEvictionSettings` (for its `evictionHard`), `evictionPressureTransitionPeriod`, `podLogsDir`, `staticPodPath`, `staticPodURL`,
`clusterDNS`, `clusterDomain`, `resolvConf`,
`crashLoopBackOff`, `seccompDefault`, `containerLogMaxSize`, `containerLogMaxFiles` and the
feature gate `KubeletEnsureSecretPulledImages`. As for the kubelet, the images are behind `containerRuntimeEndpoint` where no
`imageServiceEndpoint` is given; `--image-endpoint=` (empty) keeps them in the embedded store. All other fields are passed over and
named in one line. `httpCheckFrequency` (20s), `syncFrequency` (1m), `containerLogMaxWorkers` (1) and `containerLogMonitorInterval` (10s) are
constants, and `staticPodURLHeader` is not supported; a note names them if the file has another value. `nodeStatusMaxImages` and
`mergeDefaultEvictionSettings` have no field, flag or variable of imagelet's own. A field that KubeletConfiguration does not have is an error. The credential providers' settings are flags
of the kubelet, and flags here.
";

/// Text above the last table.
const ADVANCED: &str = "These are rarely needed: their defaults serve almost every node.\n\n";

/// Returns the page.
pub(crate) fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut group = None;
    for setting in SETTINGS.iter() {
        if group != Some(setting.group) {
            group = Some(setting.group);
            let title = setting.group.title();
            let head = "| field | flag | default | reload | meaning |\n|---|---|---|---|---|";
            let intro = if setting.group == Group::Advanced { ADVANCED } else { "" };
            let _ = write!(page, "\n## {title}\n{intro}{head}\n");
        }
        let (help, default) = (setting.help, setting.default_line());
        let flag = match setting.short {
            Some(short) => format!("`-{short}`, `--{}`", setting.flag),
            None => format!("`--{}`", setting.flag),
        };
        let cell = |text: &str| text.replace('|', "\\|").replace('<', "\\<");
        let default = default.map(|text| cell(&text)).unwrap_or_default();
        let reload = if setting.reloads { "yes" } else { "" };
        let _ = writeln!(page, "| `{}` | {flag} | {default} | {reload} | {} |", setting.field, cell(help));
    }
    page.push_str(
        "\nWith `--log-format json` each line is an object with `timestamp`, `level` and `message`; values are additional fields, under the same \
         names\neverywhere: `image`, `pod`, `container`, `reason`, `error`, `duration`, `path`, `endpoint`.\n",
    );
    page.push_str("\nThe variable of a flag is its name in capitals after `IMAGELET_`: `--registry-qps` is `IMAGELET_REGISTRY_QPS`.\n");
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_is_up_to_date() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == super::page(), "run: cargo run -p imagelet -- config --reference > docs/configuration.md");
    }
}
