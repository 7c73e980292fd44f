//! gRPC's C library (Debian's python3-grpcio) as a client of `imagelet serve`: every authority that such clients send, each kind of call,
//! and a line in the log for requests that the transport refuses.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::process::run;
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet};

/// Makes the calls of a node with each authority, and prints one object for each. Messages are written by hand: fields 1 of an
/// `ImageSpec` in a request, and lists of length-delimited fields in responses.
const CLIENT: &str = r#"
import grpc, json, sys, urllib.parse
path, image = sys.argv[1:]

def field(number, data):
    length, size = len(data), b''
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + data

def number(data, at):
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value, shift = value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at

def fields(data, wanted):
    at, found = 0, []
    while at < len(data):
        key, at = number(data, at)
        if key & 7 == 0:
            _, at = number(data, at)
            continue
        length, at = number(data, at)
        if key >> 3 == wanted:
            found.append(data[at:at + length])
        at += length
    return found

def calls(authority):
    options = [('grpc.use_local_subchannel_pool', 1)]
    if authority is not None:
        options.append(('grpc.default_authority', authority))
    with grpc.insecure_channel('unix:' + path, options) as channel:
        def call(name, request=b'', kind=channel.unary_unary):
            return kind('/runtime.v1.' + name)(request, timeout=60, metadata=[('x-client-bin', bytes(range(256)))])
        def code(name, request=b''):
            try:
                call(name, request)
                return 'OK'
            except grpc.RpcError as error:
                return error.code().name
        listed = lambda: len(fields(call('ImageService/ListImages'), 1))
        spec = field(1, field(1, image.encode()))
        return {
            'runtime': fields(call('RuntimeService/Version'), 2)[0].decode(),
            'pulled': fields(call('ImageService/PullImage', spec), 1)[0].decode(),
            'listed': sorted({listed() for _ in range(20)}),
            'streamed': sum(len(fields(batch, 1)) for batch in call('ImageService/StreamImages', kind=channel.unary_stream)),
            'status': fields(fields(call('ImageService/ImageStatus', spec), 1)[0], 1)[0].decode(),
            'usage': len(fields(call('ImageService/ImageFsInfo'), 1)),
            'absent': code('ImageService/PullImage', field(1, field(1, image.encode() + b'-absent'))),
            'unknown': code('ImageService/NoSuchCall'),
            'removed': code('ImageService/RemoveImage', spec),
            'left': listed(),
        }

quoted = urllib.parse.quote(path, safe='')
for authority in [None, path, quoted, 'unix:' + path, 'localhost', '[', 'a b']:
    print(json.dumps([authority, calls(authority)]), flush=True)
"#;

/// The lines of the client, one for each authority.
fn calls(socket: &Path, image: &str) -> Vec<(Value, Value)> {
    // Debian's program, which has Debian's library.
    let output = run(Command::new("/usr/bin/python3").args(["-c", CLIENT]).arg(socket).arg(image));
    output.lines().map(|line| serde_json::from_str(line).expect("a line of the client")).collect()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pythons_client_uses_the_engine_with_any_authority() {
    let s = Scene::new();
    let (name, image) = s.push_file("python/one:1", "a", "one");
    let socket = s.scratch.join("cri.sock");
    let agent = s.imagelet.serve(&socket);
    let calls = calls(&socket, &name);
    assert_eq!(calls.len(), 7);
    for (authority, got) in calls {
        let want = json!({
            "runtime": "imagelet", "pulled": image.id, "listed": [1], "streamed": 1, "status": image.id, "usage": 1,
            "absent": "NOT_FOUND", "unknown": "UNIMPLEMENTED", "removed": "OK", "left": 0,
        });
        assert_eq!(got, want, "{authority}");
    }
    let lines = agent.lines();
    assert!(!lines.iter().any(|line| line.contains("refused a request")), "{}", lines.join("\n"));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pythons_client_uses_a_runtime_behind_it_with_any_authority() {
    let s = Scene::new();
    let (name, image) = s.push_file("python/two:1", "a", "two");
    let containerd = Containerd::start(s.registry.host());
    let behind = containerd.endpoint();
    let imagelet = Imagelet::on(&s.scratch.join("between")).global("--pull-engine", "runtime");
    let imagelet = imagelet.global("--image-endpoint", &behind).global("--runtime-endpoint", &behind);
    let socket = s.scratch.join("cri.sock");
    let _agent = imagelet.serve(&socket);
    let calls = calls(&socket, &name);
    assert_eq!(calls.len(), 7);
    for (authority, got) in calls {
        assert_eq!((&got["runtime"], &got["pulled"]), (&json!("containerd"), &json!(image.id)), "{authority}: {got}");
        assert_eq!((&got["removed"], &got["unknown"]), (&json!("OK"), &json!("UNIMPLEMENTED")), "{authority}: {got}");
    }
}

/// A request without a method, as no library writes it.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn requests_that_the_transport_refuses_are_logged_once_for_a_connection() {
    let s = Scene::new();
    let socket = s.scratch.join("cri.sock");
    let agent = s.imagelet.serve(&socket);
    let mut connection = UnixStream::connect(&socket).expect("connected");
    connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("written");
    for stream in [1, 3, 5] {
        // The static table's entries of `:scheme: http` and `:path: /`.
        connection.write_all(&[0, 0, 2, 1, 5, 0, 0, 0, stream, 0x86, 0x84]).expect("written");
    }
    let line = agent.wait_for("the refusal", |line| line.contains("refused a request").then(|| line.to_owned()));
    assert!(line.contains("PROTOCOL_ERROR") && line.contains(&std::process::id().to_string()), "{line}");
    // The server has answered everything before this connection.
    s.imagelet.ok(&["images"]);
    let lines = agent.lines();
    assert_eq!(lines.iter().filter(|line| line.contains("refused a request")).count(), 1, "{}", lines.join("\n"));
}
