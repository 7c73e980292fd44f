//! A network of the test's own: bridges, rules of iptables and ports of the node that a test creates affect no other process, and
//! are removed with it. Also sends HTTP requests to pods, as a client of theirs would.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use std::{fs, io, thread};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::process::{eventually, need_root, run, tool};

/// The node's address in it, on an interface that leads nowhere.
pub(crate) const NODE_IP: &str = "192.0.2.10";

/// Moves this thread, and with it everything that it starts from now on, into a new network namespace. The namespace ends with the
/// last process in it.
#[track_caller]
pub(crate) fn enter_own_network() {
    need_root();
    let mut holder = tool("unshare").args(["--net", "sleep", "infinity"]).spawn().expect("start unshare");
    let theirs = format!("/proc/{}/ns/net", holder.id());
    let ours = fs::read_link("/proc/thread-self/ns/net").expect("read a namespace");
    eventually("unshare has made a namespace", || fs::read_link(&theirs).is_ok_and(|theirs| theirs != ours));
    let namespace = fs::File::open(&theirs).expect("open a namespace");
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("enter a namespace");
    holder.kill().expect("it is our child");
    holder.wait().expect("it is our child");
    for line in ["link set lo up", "link add node0 type bridge", "link set node0 up"] {
        run(tool("ip").args(line.split(' ')));
    }
    run(tool("ip").args(["address", "add", &format!("{NODE_IP}/24"), "dev", "node0"]));
}

/// Writes the network of pods as Debian's plugins read it: a bridge, ports of the node, addresses that are kept in
/// `addresses`.
#[track_caller]
pub(crate) fn write_pod_network(directory: &Path, name: &str, addresses: &Path) {
    fs::create_dir_all(directory).expect("create a directory of networks");
    let network = serde_json::json!({"cniVersion": "0.4.0", "name": name, "plugins": [
        {"type": "bridge", "bridge": "pods0", "isGateway": true, "hairpinMode": true,
         "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}],
                  "dataDir": addresses}},
        {"type": "portmap", "capabilities": {"portMappings": true}}]});
    fs::write(directory.join("10-pods.conflist"), network.to_string()).expect("write a network");
}

/// Forwards connections to a port of the node to a unix socket.
#[track_caller]
pub(crate) fn carry_to_socket(port: u16, socket: &Path) {
    let listener = TcpListener::bind((NODE_IP, port)).expect("listen in the test's own network");
    let socket = socket.to_path_buf();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let Ok(mut server) = UnixStream::connect(&socket) else { continue };
            let (Ok(mut from_client), Ok(mut from_server)) = (client.try_clone(), server.try_clone()) else { continue };
            thread::spawn(move || {
                let _ = io::copy(&mut from_client, &mut server);
                let _ = server.shutdown(Shutdown::Write);
            });
            thread::spawn(move || {
                let _ = io::copy(&mut from_server, &mut client);
                let _ = client.shutdown(Shutdown::Write);
            });
        }
    });
}

/// The body of a good answer to a GET of `path` at `address` (`host:port`); `None` where there is none.
pub(crate) fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address.parse().expect("an address"), Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket has a time limit");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.split(' ').nth(1).filter(|status| *status == "200")?;
    Some(body.to_owned())
}
