//! `imagelet ls`: lists files of an image or a layer, without mounting it. Entries are written as they are found, so that memory does not
//! grow with the image.

use std::ffi::OsStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use store::view::{Kind, Node, View};

use super::tree::{self, FileName, failure, mode_text};
use crate::app::App;
use crate::args::Ls;
use crate::exit::{Failure, Outcome};
use crate::output::{Format, Sequence, units};

/// An entry in JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    path: String,
    /// Bytes of the path in base64, if the path is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
    #[serde(rename = "type")]
    kind: Kind,
    mode: String,
    uid: u32,
    gid: u32,
    size: u64,
    links: u32,
    modified: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<Device>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<Attribute>,
    /// An opaque directory hides the entries of the layers below; present for a single layer only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    opaque: bool,
    /// Diff id of the layer that contains the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<String>,
}

#[derive(Serialize)]
struct Device {
    major: u32,
    minor: u32,
}

#[derive(Serialize)]
struct Attribute {
    name: String,
    /// The value, in base64.
    value: String,
}

/// The form of entries.
#[derive(Clone, Copy)]
enum EntryForm {
    Names,
    Long { layer: bool },
    Document(Format),
}

pub(super) async fn run(app: &App, args: &Ls) -> Outcome {
    let file = match (FileName::split_absolute(&args.image), &args.path) {
        (Some(file), None) => file,
        (_, path) => FileName::of_words(&args.image, path.as_deref().unwrap_or(OsStr::new("/")))?,
    };
    let FileName { image, path } = file;
    let shown = match app.printer.format {
        _ if app.printer.quiet => EntryForm::Names,
        Some(format) if format.is_document() => EntryForm::Document(format),
        Some(Format::Wide) => EntryForm::Long { layer: true },
        Some(Format::Table) | None if args.long => EntryForm::Long { layer: false },
        _ => EntryForm::Names,
    };
    let (recursive, whole, name) = (args.recursive, app.printer.whole, image.clone());
    let list = move |view: &View| {
        let out = match shown {
            EntryForm::Document(format) => Sequence::of(format),
            _ => Sequence::lines(),
        };
        let lister = Lister { view, image: &image, shown, recursive, whole, out };
        lister.list(&path)
    };
    tree::read(app, &format!("ls {name}"), &name, list).await
}

struct Lister<'a> {
    view: &'a View,
    image: &'a str,
    shown: EntryForm,
    recursive: bool,
    whole: bool,
    out: Sequence,
}

impl Lister<'_> {
    fn list(mut self, path: &[u8]) -> Outcome {
        let to_failure = |error| failure(format!("ls {}", self.image), &error);
        let mut node = self.view.resolve(path, false).map_err(to_failure)?;
        // As in `ls`: a link to a directory lists the directory, unless the link itself is shown.
        if node.stat().kind == Kind::Symlink
            && matches!(self.shown, EntryForm::Names)
            && let Ok(led) = self.view.resolve(path, true)
            && led.stat().kind == Kind::Directory
        {
            node = led;
        }
        if node.stat().kind != Kind::Directory {
            self.entry(&node, path)?;
            return self.out.end();
        }
        // A stack of entries: the next one is last.
        let skip = if node.path().is_empty() { 0 } else { node.path().len() + 1 };
        let mut left = self.below(&node)?;
        while let Some(next) = left.pop() {
            if !self.entry(&next, &next.path()[skip..])? {
                return Ok(());
            }
            if self.recursive && next.stat().kind == Kind::Directory {
                left.extend(self.below(&next)?);
            }
        }
        self.out.end()
    }

    /// Returns the entries of a directory, the first one last.
    fn below(&self, dir: &Node) -> Outcome<Vec<Node>> {
        let mut entries = self.view.entries(dir).map_err(|error| failure(format!("ls {}", self.image), &error))?;
        entries.reverse();
        Ok(entries)
    }

    /// Writes an entry. Returns false if the reader has closed the pipe.
    fn entry(&mut self, node: &Node, name: &[u8]) -> Outcome<bool> {
        match self.shown {
            EntryForm::Names => self.out.line(name),
            EntryForm::Long { layer } => {
                let line = self.long(node, name, layer)?;
                self.out.line(&line)
            }
            EntryForm::Document(_) => {
                let entry = self.document(node)?;
                self.out.item(&entry)
            }
        }
    }

    fn long(&self, node: &Node, name: &[u8], layer: bool) -> Outcome<Vec<u8>> {
        let stat = node.stat();
        let size = match stat.kind {
            Kind::Char | Kind::Block => format!("{}, {}", stat.device.0, stat.device.1),
            _ => stat.size.to_string(),
        };
        let (mode, links, time) = (mode_text(stat), stat.links, units::time(time(node).ok()));
        let mut line = format!("{mode} {links:>3} {:>5} {:>5} {size:>10} {time:>20} ", stat.uid, stat.gid).into_bytes();
        if layer {
            let from = self.view.layer_of(node).map(|diff_id| units::id(&diff_id.to_string(), self.whole));
            line.extend_from_slice(format!("{} ", from.as_deref().unwrap_or("-")).as_bytes());
        }
        line.extend_from_slice(name);
        if stat.kind == Kind::Symlink {
            line.extend_from_slice(b" -> ");
            line.extend(self.target(node)?);
        }
        Ok(line)
    }

    fn document(&self, node: &Node) -> Outcome<Entry> {
        let stat = node.stat();
        let to_failure = |error| failure(format!("ls {}", self.image), &error);
        let path = [b"/", node.path()].concat();
        let xattrs = self.view.xattrs(node).map_err(to_failure)?;
        let attribute = |(name, value): (Vec<u8>, Vec<u8>)| Attribute {
            name: String::from_utf8_lossy(&name).into_owned(),
            value: STANDARD.encode(value),
        };
        let device = matches!(stat.kind, Kind::Char | Kind::Block);
        Ok(Entry {
            path_base64: std::str::from_utf8(&path).is_err().then(|| STANDARD.encode(&path)),
            path: String::from_utf8_lossy(&path).into_owned(),
            kind: stat.kind,
            mode: format!("{:04o}", stat.mode),
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            links: stat.links,
            modified: time(node)?.to_string(),
            device: device.then_some(Device { major: stat.device.0, minor: stat.device.1 }),
            target: match stat.kind {
                Kind::Symlink => Some(String::from_utf8_lossy(&self.target(node)?).into_owned()),
                _ => None,
            },
            xattrs: xattrs.into_iter().map(attribute).collect(),
            opaque: self.view.is_single() && self.view.hides_below(node).map_err(to_failure)?,
            layer: self.view.layer_of(node).map(ToString::to_string),
        })
    }

    fn target(&self, node: &Node) -> Outcome<Vec<u8>> {
        self.view.target(node).map_err(|error| failure(format!("ls {}", self.image), &error))
    }
}

/// Returns the modification time. A layer can contain a year that is out of range.
fn time(node: &Node) -> Outcome<jiff::Timestamp> {
    let (seconds, nanos) = node.stat().mtime;
    jiff::Timestamp::new(seconds, i32::try_from(nanos).unwrap_or(0)).map_err(|_| {
        let path = String::from_utf8_lossy(node.path()).escape_debug().to_string();
        Failure::failed(format!("/{path} was changed at a time that no calendar has: {seconds} seconds from 1970"))
    })
}
