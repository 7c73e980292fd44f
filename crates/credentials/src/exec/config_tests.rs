//! Tests of [`super::read`]: files and directories as the kubelet reads them.

use std::sync::Arc;

use super::super::decode::{ProviderConfig, TokenAttributes};
use super::*;
use base::GoDuration;

fn yaml() -> ParseYaml {
    Arc::new(|text| serde_saphyr::from_str(text).map_err(|error| error.to_string()))
}

/// The document that most cases are a variation of.
fn document(kind: &str, version: &str, providers: &str) -> String {
    format!("---\nkind: {kind}\napiVersion: {version}\nproviders:\n{providers}")
}

/// A provider in YAML, with arguments and environment.
fn entry(name: &str, images: &[&str], protocol: &str, more: &str) -> String {
    let images: String = images.iter().map(|image| format!("    - \"{image}\"\n")).collect();
    format!(
        "  - name: {name}\n    matchImages:\n{images}    defaultCacheDuration: 10m\n    apiVersion: {}\n    args:\n    \
         - --v=5\n    env:\n    - name: FOO\n      value: BAR\n{more}",
        api(protocol)
    )
}

fn api(version: &str) -> String {
    format!("credentialprovider.kubelet.k8s.io/{version}")
}

fn json(name: &str, image: &str, version: &str, duration: &str) -> String {
    serde_json::json!({
        "kind": "CredentialProviderConfig",
        "apiVersion": format!("kubelet.config.k8s.io/{version}"),
        "providers": [{
            "name": name,
            "matchImages": [image],
            "defaultCacheDuration": duration,
            "apiVersion": api(version),
            "args": ["--v=5"],
            "env": [{"name": "FOO", "value": "BAR"}],
        }],
    })
    .to_string()
}

fn want(name: &str, images: &[&str], protocol: &str, duration: &str) -> ProviderConfig {
    ProviderConfig {
        name: name.to_owned(),
        match_images: images.iter().map(|image| (*image).to_owned()).collect(),
        default_cache_duration: GoDuration::parse(duration),
        api_version: api(protocol),
        args: vec!["--v=5".to_owned()],
        env: vec![("FOO".to_owned(), "BAR".to_owned())],
        token_attributes: None,
    }
}

/// The configuration that is read: one file, or a directory of files with their names.
enum Files {
    One(String),
    Directory(Vec<(&'static str, String)>),
}

/// The providers, or a part of the error.
type Wanted = Result<Vec<ProviderConfig>, &'static str>;

fn read_files(files: &Files) -> Result<(Vec<ProviderConfig>, String), String> {
    let directory = tempfile::tempdir().expect("a directory");
    match files {
        Files::One(text) => {
            let path = directory.path().join("config.yaml123");
            fs::write(&path, text).expect("written");
            read(&path, &yaml())
        }
        Files::Directory(files) => {
            for (name, text) in files {
                fs::write(directory.path().join(name), text).expect("written");
            }
            read(directory.path(), &yaml())
        }
    }
}

#[test]
fn configurations() {
    use Files::{Directory, One};
    const KIND: &str = "CredentialProviderConfig";
    let of = |version: &str, providers: &[String]| {
        document(KIND, &format!("kubelet.config.k8s.io/{version}"), &providers.concat())
    };
    let alpha = |images: &[&str]| of("v1alpha1", &[entry("test", images, "v1alpha1", "")]);
    let two = |version: &str| {
        of(
            version,
            &[entry("test1", &["registry.io/one"], version, ""), entry("test2", &["registry.io/two"], version, "")],
        )
    };
    let both = |version: &str| {
        vec![want("test1", &["registry.io/one"], version, "10m"), want("test2", &["registry.io/two"], version, "10m")]
    };
    let one = |name: &str, image: &str| of("v1", &[entry(name, &[image], "v1", "")]);
    let audience = "    tokenAttributes:\n      serviceAccountTokenAudience: audience\n";
    let cases: Vec<(&str, Files, Wanted)> = vec![
        (
            "upstream: plugin/Test_readCredentialProviderConfig/empty directory with no JSON or YAML files",
            Directory(vec![]),
            Err("no configuration files found in directory"),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/directory with unsupported file extensions",
            Directory(vec![("config.txt", "text".into()), ("config.md", "text".into())]),
            Err("no configuration files found in directory"),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/config with 1 plugin and 1 image matcher",
            One(alpha(&["registry.io/foobar"])),
            Ok(vec![want("test", &["registry.io/foobar"], "v1alpha1", "10m")]),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/config with 1 plugin and 1 image matcher (JSON!)",
            One(json("test", "registry.io/foobar", "v1alpha1", "10m")),
            Ok(vec![want("test", &["registry.io/foobar"], "v1alpha1", "10m")]),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/config with 1 plugin and a wildcard image match",
            One(alpha(&["registry.io/*"])),
            Ok(vec![want("test", &["registry.io/*"], "v1alpha1", "10m")]),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/config with 1 plugin and multiple image matchers",
            One(alpha(&["registry.io/*", "foobar.registry.io/*"])),
            Ok(vec![want("test", &["registry.io/*", "foobar.registry.io/*"], "v1alpha1", "10m")]),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/config with multiple providers",
            One(two("v1alpha1")),
            Ok(both("v1alpha1")),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/v1beta1 config with multiple providers",
            One(two("v1beta1")),
            Ok(both("v1beta1")),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/v1 config with multiple providers",
            One(two("v1")),
            Ok(both("v1")),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/config with wrong Kind",
            One(document("WrongKind", "kubelet.config.k8s.io/v1alpha1", "")),
            Err(r#"no kind "WrongKind" is registered for version "kubelet.config.k8s.io/v1alpha1""#),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/config with wrong apiversion",
            One(document(KIND, "foobar/v1alpha1", "")),
            Err(r#"no kind "CredentialProviderConfig" is registered for version "foobar/v1alpha1""#),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/config with invalid typo",
            One(of(
                "v1",
                &[entry("test", &["registry.io/foobar"], "v1alpha1", "    unknownField: should not be here\n")],
            )),
            Err(r#"strict decoding error: unknown field "providers[0].unknownField""#),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/v1alpha1 config with token attributes should fail",
            One(of("v1alpha1", &[entry("test", &["registry.io/foobar"], "v1alpha1", audience)])),
            Err(r#"strict decoding error: unknown field "providers[0].tokenAttributes""#),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/v1beta1 config with token attributes should fail",
            One(of("v1beta1", &[entry("test", &["registry.io/foobar"], "v1beta1", audience)])),
            Err(r#"strict decoding error: unknown field "providers[0].tokenAttributes""#),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/directory with multiple config files in lexicographic order",
            Directory(vec![
                ("config-001.yaml", one("test2", "registry.io/two")),
                ("config-000.yaml", one("test1", "registry.io/one")),
            ]),
            Ok(both("v1")),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/directory with mixed API versions in config files",
            Directory(vec![
                ("config-000.yaml", of("v1beta1", &[entry("test-beta", &["beta.registry.io/*"], "v1beta1", "")])),
                ("config-001.yaml", of("v1", &[entry("test-v1", &["v1.registry.io/*"], "v1", "")])),
                ("config-002.yaml", json("test-v2", "v2.registry.io/*", "v1", "20m")),
            ]),
            Ok(vec![
                want("test-beta", &["beta.registry.io/*"], "v1beta1", "10m"),
                want("test-v1", &["v1.registry.io/*"], "v1", "10m"),
                want("test-v2", &["v2.registry.io/*"], "v1", "20m"),
            ]),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/directory with duplicate provider names, throw error",
            Directory(vec![
                ("config-000.yaml", one("duplicate", "registry.io/one")),
                ("config-001.yaml", one("duplicate", "registry.io/two")),
            ]),
            Err(r#"duplicate provider name "duplicate" found in configuration file(s)"#),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/directory with mixed supported and unsupported file extensions",
            Directory(vec![
                ("config-001.yaml", one("test1", "registry.io/one")),
                ("config-002.txt", "to be skipped".into()),
                ("config-003.json", json("test2", "registry.io/two", "v1", "5m")),
            ]),
            Ok(vec![want("test1", &["registry.io/one"], "v1", "10m"), want("test2", &["registry.io/two"], "v1", "5m")]),
        ),
        (
            "upstream: plugin/Test_readCredentialProviderConfig/directory with one invalid config file",
            Directory(vec![
                ("config-000.yaml", one("test1", "registry.io/one")),
                ("config-001.yaml", document("WrongKind", "kubelet.config.k8s.io/v1", "")),
            ]),
            Err(r#"no kind "WrongKind" is registered for version "kubelet.config.k8s.io/v1""#),
        ),
        (
            "a kubelet's own configuration",
            One(document("KubeletConfiguration", "kubelet.config.k8s.io/v1beta1", "")),
            Err(r#"failed to decode "KubeletConfiguration" (wrong Kind)"#),
        ),
        ("no kind", One("apiVersion: kubelet.config.k8s.io/v1\n".into()), Err("Object 'Kind' is missing")),
        ("no version", One(format!("kind: {KIND}\n")), Err("Object 'apiVersion' is missing")),
        ("nothing", One(String::new()), Err("Object 'Kind' is missing")),
        ("a list", One("[]".into()), Err("the document: must be a map, but is a list")),
        ("not UTF-8 is told by the parser's caller", One("{".into()), Err("error decoding config")),
        (
            "unknown fields everywhere",
            One(of(
                "v1",
                &["  - nome: x\n    env: [{name: A, valve: B}]\n    tokenAttributes: {audience: x}\n".into()],
            ) + "extra: 1\n"),
            Err(
                r#"strict decoding error: unknown field "providers[0].nome", unknown field "providers[0].env[0].valve", unknown field "providers[0].tokenAttributes.audience", unknown field "extra""#,
            ),
        ),
        (
            "a wrong type, whose value is not shown",
            One(of("v1", &["  - {name: x, args: swordfish}\n".into()])),
            Err("providers[0].args: must be a list, but is a string"),
        ),
        (
            "a wrong type in a list",
            One(of("v1", &["  - {args: [a, 5]}\n".into()])),
            Err("providers[0].args[1]: must be a string, but is a number"),
        ),
        (
            "no duration",
            One(of("v1", &["  - {defaultCacheDuration: ten}\n".into()])),
            Err(r#"providers[0].defaultCacheDuration: "ten" is no duration like 10m or 1h30m"#),
        ),
        (
            "a number as a duration",
            One(of("v1", &["  - {defaultCacheDuration: 10}\n".into()])),
            Err("providers[0].defaultCacheDuration: must be a duration like 10m, but is a number"),
        ),
        (
            "nulls stand for nothing",
            One(of(
                "v1",
                &["  - {name: ~, args: ~, env: ~, defaultCacheDuration: ~, tokenAttributes: ~}\n  - ~\n".into()],
            )),
            Err(r#"duplicate provider name """#),
        ),
    ];
    for (name, files, want) in cases {
        match (read_files(&files), want) {
            (Ok((config, hash)), Ok(want)) => {
                assert_eq!(config.len(), want.len(), "{name}");
                for (got, want) in config.iter().zip(&want) {
                    assert!(got == want, "{name}: {}", got.name);
                }
                assert!(hash.starts_with("sha256:") && hash.len() == 71, "{name}: {hash}");
            }
            (Err(error), Err(want)) => assert!(error.contains(want), "{name}: {error}"),
            (Ok(_), Err(want)) => panic!("{name}: read, but wanted {want}"),
            (Err(error), Ok(_)) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn token_attributes_are_read() {
    let text = document(
        "CredentialProviderConfig",
        "kubelet.config.k8s.io/v1",
        "  - name: x\n    tokenAttributes:\n      serviceAccountTokenAudience: a\n      cacheType: Token\n      \
         requireServiceAccount: false\n      requiredServiceAccountAnnotationKeys: [r]\n      \
         optionalServiceAccountAnnotationKeys: [o, p]\n",
    );
    let (config, _) = read_files(&Files::One(text)).expect("read");
    let want = TokenAttributes {
        audience: "a".into(),
        cache_type: "Token".into(),
        require_service_account: Some(false),
        required_annotations: vec!["r".into()],
        optional_annotations: vec!["o".into(), "p".into()],
    };
    assert_eq!(config[0].token_attributes, Some(want));
}

/// The hash runs over each file's length and bytes, so that moving a boundary between files changes it.
// upstream: plugin/Test_readCredentialProviderConfig/the hash of the files
#[test]
fn the_hash_of_the_files() {
    let text = json("a", "r.example", "v1", "1m");
    let (_, one) = read_files(&Files::One(text.clone())).expect("read");
    let mut bytes = (text.len() as u64).to_be_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    assert_eq!(one, format!("sha256:{}", hex::encode(Sha256::digest(&bytes))));
    let (_, same) = read_files(&Files::Directory(vec![("a.json", text.clone())])).expect("read");
    assert_eq!(one, same);
    let (_, other) = read_files(&Files::One(text + "\n")).expect("read");
    assert_ne!(one, other);
}

#[test]
fn unreadable_configurations_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    assert_eq!(read(Path::new(""), &yaml()).expect_err("empty"), "credential provider config path is empty");
    let missing = directory.path().join("missing");
    let error = read(&missing, &yaml()).expect_err("missing");
    assert!(error.starts_with(&format!("unable to access path \"{}\": ", missing.display())), "{error}");
    // A directory that is called like a file does not count; a link to a file does, a broken one is an error.
    fs::create_dir(directory.path().join("a.yaml")).expect("made");
    assert!(read(directory.path(), &yaml()).expect_err("none").starts_with("no configuration files found"));
    std::os::unix::fs::symlink("nowhere", directory.path().join("b.yaml")).expect("linked");
    assert!(read(directory.path(), &yaml()).expect_err("broken").starts_with("unable to read directory"));
    fs::write(directory.path().join("nowhere"), [0xff]).expect("written");
    assert!(read(directory.path(), &yaml()).expect_err("no text").ends_with("it is not UTF-8"));
    fs::write(directory.path().join("nowhere"), vec![b' '; 9 << 20]).expect("written");
    assert!(read(directory.path(), &yaml()).expect_err("too long").ends_with("it is larger than 8388608 bytes"));
}

#[test]
fn debug_shows_no_arguments() {
    let shown = format!("{:?}", vec![want("x", &[], "v1", "1m")]);
    assert!(shown.contains('x') && !shown.contains("BAR") && !shown.contains("--v"), "{shown}");
}
