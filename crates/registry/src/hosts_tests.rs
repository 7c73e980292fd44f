//! Tables for the `hosts.toml` parser: what is taken, in which order, and how each error names its place.

use super::*;
use crate::testing::{ca_pem, client_certificate_pem, client_key_pem};

fn read_test_file(path: &str) -> io::Result<Vec<u8>> {
    match path {
        "ca.pem" => Ok(ca_pem()),
        "cert.pem" => Ok(client_certificate_pem()),
        "key.pem" => Ok(client_key_pem()),
        "both.pem" => Ok([client_certificate_pem(), client_key_pem()].concat()),
        "junk.pem" => Ok(b"nothing here".to_vec()),
        _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such file")),
    }
}

fn namespace(domain: &str, text: &str) -> Result<Namespace, HostsError> {
    parse(text)?.into_namespace(domain, &mut read_test_file)
}

fn bases(domain: &str, text: &str) -> Vec<String> {
    let shown = |h: &HostConfig| format!("{}{}", h.base, if h.upstream { " upstream" } else { "" });
    namespace(domain, text).expect("parses").hosts.iter().map(shown).collect()
}

#[test]
fn order_and_server() {
    let cases: Vec<(&str, &str, Vec<&str>)> = vec![
        ("r.example", "", vec!["https://r.example/ upstream"]),
        ("docker.io", "", vec!["https://registry-1.docker.io/ upstream"]),
        (
            "docker.io",
            "[host.\"https://z.example\"]\n[host.\"http://a.example:5000\"]\n[host.\"m.example/prefix\"]",
            vec![
                "https://z.example/",
                "http://a.example:5000/",
                "https://m.example/prefix",
                "https://registry-1.docker.io/ upstream",
            ],
        ),
        ("docker.io", "server = \"https://m.example\"", vec!["https://m.example/"]),
        ("docker.io", "server = \"https://registry-1.docker.io\"", vec!["https://registry-1.docker.io/ upstream"]),
        ("r.example:5000", "server = \"http://r.example:5000\"", vec!["http://r.example:5000/ upstream"]),
        ("r.example", "server = \"http://r.example\"", vec!["http://r.example/ upstream"]),
        ("r.example", "server = \"http://r.example:5000\"", vec!["http://r.example:5000/"]),
        ("docker.io", "server = \"https://docker.io\"", vec!["https://registry-1.docker.io/ upstream"]),
        ("r.example", "server = \"\"", vec!["https://r.example/ upstream"]),
        (
            "127.0.0.1:5000",
            "[host.\"http://127.0.0.1:5001\"]",
            vec!["http://127.0.0.1:5001/", "http://127.0.0.1:5000/ upstream"],
        ),
    ];
    for (domain, text, want) in cases {
        assert_eq!(bases(domain, text), want, "{domain}: {text}");
    }
}

#[test]
fn every_setting() {
    let text = r#"
server = "https://up.example"
capabilities = ["pull"]
skip_verify = true

[header]
  x-root = "r"

[host."https://m.example/p"]
  capabilities = ["pull", "resolve", "referrers"]
  ca = ["ca.pem", "ca.pem"]
  client = [["cert.pem", "key.pem"], "both.pem", ["both.pem", ""]]
  skip_verify = false
  override_path = true
  dial_timeout = "1m1.5s"
  proxy = "http://ada:swordfish@proxy.example:3128"
  [host."https://m.example/p".header]
    Authorization = "Basic abc"
    x-list = ["1", "2"]

[host."https://n.example"]
  ca = "ca.pem"
  client = "both.pem"
"#;
    let got = namespace("up.example", text).expect("parses").hosts;
    assert_eq!(got.len(), 3);
    let (m, n, up) = (&got[0], &got[1], &got[2]);
    assert_eq!(m.capabilities, HostCapabilities { pull: true, resolve: true, push: false });
    assert_eq!((m.tls.ca_pem.len(), m.tls.client_identity_pem.len(), m.tls.skip_verify), (2, 3, false));
    assert_eq!(m.tls.client_identity_pem[0], (client_certificate_pem(), client_key_pem()));
    assert!(m.override_path && !m.upstream);
    assert_eq!(m.api_root(), "/p");
    assert_eq!(m.dial_timeout, Duration::from_millis(61_500));
    assert_eq!(m.proxy.as_ref().map(Url::as_str), Some("http://ada:swordfish@proxy.example:3128/"));
    assert!(n.proxy.is_none() && up.proxy.is_none());
    let headers: Vec<(&str, &str)> = m.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(headers, [("Authorization", "Basic abc"), ("x-list", "1"), ("x-list", "2")]);
    assert_eq!((n.tls.ca_pem.len(), n.tls.client_identity_pem.len()), (1, 1));
    assert_eq!(n.capabilities, HostCapabilities::default());
    assert_eq!(n.dial_timeout, DIAL_TIMEOUT);
    assert!(up.upstream && up.tls.skip_verify);
    assert_eq!(up.capabilities, HostCapabilities { pull: true, resolve: false, push: false });
    assert_eq!(up.headers, [("x-root".to_owned(), "r".to_owned())]);
}

#[test]
fn empty_values_count_as_absent() {
    let text = "capabilities = []\ndial_timeout = \"\"\nproxy = \"\"\nserver = \"\"";
    assert_eq!(namespace("r.example", text).expect("parses"), namespace("r.example", "").expect("parses"));
    let got = namespace("r.example", "capabilities = [\"Pull\", \"RESOLVE\"]").expect("parses").hosts;
    assert_eq!(got[0].capabilities, HostCapabilities { pull: true, resolve: true, push: false });
}

#[test]
fn errors_name_line_and_key() {
    let cases: Vec<(&str, &str)> = vec![
        ("server = ", "line 1: "),
        ("\n\n[host.\"https://m\"\n", "line 3: "),
        ("a = 1\na = 2", "line 2: "),
        ("serve = \"x\"", "line 1: serve: unknown key"),
        ("\n[host.\"https://m\"]\n\ncapability = []", "line 4: host.\"https://m\".capability: unknown key"),
        ("[host.\"https://m\"]\nserver = \"x\"", "line 2: host.\"https://m\".server: unknown key"),
        ("server = 7", "line 1: server: want a string, not integer"),
        ("server = \"ftp://x\"", "line 1: server: the scheme must be http or https"),
        ("server = \"https://u:p@x\"", "line 1: server: the URL must not have a user or password"),
        ("server = \"https://x?a=b\"", "line 1: server: the URL must not have a query"),
        ("server = \"https://\"", "line 1: server: not a URL"),
        ("host = \"x\"", "line 1: host: want a table, not string"),
        ("[host]\n\"https://m\" = 1", "line 2: host.\"https://m\": want a table, not integer"),
        ("[host.\"https://\"]", "line 1: host.\"https://\": not a URL"),
        ("capabilities = \"pull\"", "line 1: capabilities: want a list of strings, not string"),
        ("capabilities = [\n\"pull\",\n\"fly\"]", "line 3: capabilities: unknown capability \"fly\"; known are pull"),
        ("capabilities = [1]", "line 1: capabilities: want a string, not integer"),
        ("ca = true", "line 1: ca: want a string or a list of strings, not boolean"),
        ("ca = [[\"a\"]]", "line 1: ca: want a string, not array"),
        ("client = {}", "line 1: client: want a string, a list of strings or a list of [certificate, key] pairs"),
        ("client = [[\"a\",\"b\",\"c\"]]", "line 1: client: want a certificate and a key, not 3 items"),
        ("client = [[]]", "line 1: client: want a certificate and a key, not 0 items"),
        ("skip_verify = \"yes\"", "line 1: skip_verify: want true or false, not string"),
        ("override_path = 1", "line 1: override_path: want true or false, not integer"),
        ("header = []", "line 1: header: want a table, not array"),
        ("[header]\n\"a b\" = \"x\"", "line 2: header.a b: not a header name"),
        ("[header]\na = 1", "line 2: header.a: want a string or a list of strings"),
        ("[header]\na = \"x\\ny\"", "line 2: header.a: not a header value"),
        ("dial_timeout = 5", "line 1: dial_timeout: want a string, not integer"),
        ("dial_timeout = \"5\"", "line 1: dial_timeout: want a duration"),
        ("dial_timeout = \"0\"", "line 1: dial_timeout: want a duration"),
        ("dial_timeout = \"0s\"", "line 1: dial_timeout: want a duration"),
        ("dial_timeout = \"-1s\"", "line 1: dial_timeout: want a duration"),
        ("dial_timeout = \"1e999h\"", "line 1: dial_timeout: want a duration"),
        ("proxy = 1", "line 1: proxy: want a string, not integer"),
        ("proxy = \"p.example:3128\"", "line 1: proxy: the scheme must be http, https or socks5"),
        ("proxy = \"proxy\"", "line 1: proxy: not a URL such as"),
        ("proxy = \"socks4://u:secret@p\"", "line 1: proxy: the scheme must be http, https or socks5"),
        ("proxy = \"socks5://u:secret@p/path\"", "line 1: proxy: the URL must not have a path, query or fragment"),
        ("proxy = \"socks5:///\"", "line 1: proxy: the URL has no host"),
        ("proxy = \"http://p/path\"", "line 1: proxy: the URL must not have a path, query or fragment"),
        ("[host.\"https://m\".mirrors]", "line 1: host.\"https://m\".mirrors: unknown key"),
        ("[host.\"https://m\".rewrite]\n\"^a\" = \"b\"", "line 1: host.\"https://m\".rewrite: unknown key"),
        ("[plugins.\"io.containerd.grpc.v1.cri\".registry]", "line 1: plugins: unknown key"),
        ("[mirrors.\"docker.io\"]\nendpoint = []", "line 1: mirrors: unknown key"),
        ("ca = \"gone.pem\"", "ca: gone.pem: no such file"),
        ("[host.\"https://m\"]\nca = \"junk.pem\"", "host.\"https://m\".ca: junk.pem: has no PEM certificate"),
        ("client = \"cert.pem\"", "client: cert.pem: has no PEM private key"),
        ("client = [[\"ca.pem\", \"key.pem\"]]", "client: key.pem: certificate and key cannot be used"),
        ("client = [[\"cert.pem\", \"gone.pem\"]]", "client: gone.pem: no such file"),
    ];
    for (text, want) in cases {
        let got = namespace("r.example", text).map(|_| ()).map_err(|e| e.to_string());
        assert!(got.as_ref().is_err_and(|e| e.starts_with(want)), "{text:?}: {got:?}, not {want:?}");
    }
    let nested = HostsError::Domain { domain: "x".into() }.in_file("/etc/x/hosts.toml");
    assert_eq!(nested.to_string(), "/etc/x/hosts.toml: \"x\" is not a registry host");
}

proptest::proptest! {
    #[test]
    fn never_panics(text in "\\PC{0,200}") {
        let _ = namespace("r.example", &text);
    }

    #[test]
    fn never_panics_on_near_misses(
        text in r#"((server|ca|client|header|host|capabilities|dial_timeout|skip_verify)|[ =\[\]",.\n]|https://m|é|pull|true|1|\[host\."https://m"\]\n){0,40}"#
    ) {
        let _ = namespace("r.example", &text);
    }
}
