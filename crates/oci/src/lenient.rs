//! A second reader of OCI documents, as lenient as Go's: keys in any case, the last of equal keys wins, `null` changes nothing, and strings
//! may be no Unicode. Written apart from the first one, to compare with: where the first reader accepts a document, both must see
//! the same content. For tests and fuzzing only.

use crate::{Descriptor, Document, ImageConfig};

/// Deepest nesting that is read.
const DEPTH: usize = 200;

/// A value. Objects keep every key, in order.
enum Node {
    Null,
    /// A number, true or false, as it is written.
    Word(String),
    Text(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

/// Checks that both readers see the same in a document that the first one accepts.
///
/// # Panics
/// When they do not.
pub(crate) fn compare_document(bytes: &[u8], document: &Document) {
    let second = read(bytes).expect("the lenient reader accepts more");
    match document {
        Document::Manifest(manifest) => {
            assert_descriptor(second.field("config").expect("a config"), &manifest.config);
            assert_descriptors(&second, "layers", &manifest.layers);
            assert!(second.field("manifests").is_none(), "it is an index for another reader");
            assert_eq!(second.text("mediaType"), manifest.media_type.as_deref().unwrap_or_default());
        }
        Document::Index(index) => {
            assert_descriptors(&second, "manifests", &index.manifests);
            assert!(second.field("layers").or(second.field("config")).is_none(), "it is an image for another reader");
            assert_eq!(second.text("mediaType"), index.media_type.as_deref().unwrap_or_default());
        }
    }
}

/// The same for a config.
///
/// # Panics
/// When they do not.
pub(crate) fn compare_config(bytes: &[u8], config: &ImageConfig) {
    let second = read(bytes).expect("the lenient reader accepts more");
    let rootfs = second.field("rootfs").expect("a rootfs");
    let ids: Vec<String> = config.rootfs.diff_ids.iter().map(ToString::to_string).collect();
    assert_eq!(rootfs.texts("diff_ids"), ids);
    assert_eq!(second.text("os"), config.platform.os);
    assert_eq!(second.text("architecture"), config.platform.architecture);
    assert_eq!(second.text("variant"), config.platform.variant.as_deref().unwrap_or_default());
    let nothing = Node::Null;
    let run = second.field("config").unwrap_or(&nothing);
    assert_eq!(run.text("User"), config.config.user);
    assert_eq!(run.texts("Env"), config.config.env);
    assert_eq!(run.texts("Entrypoint"), config.config.entrypoint);
    assert_eq!(run.texts("Cmd"), config.config.cmd);
}

fn assert_descriptors(object: &Node, field: &str, descriptors: &[Descriptor]) {
    let list = object.list(field);
    assert_eq!(list.len(), descriptors.len(), "{field}");
    list.iter().zip(descriptors).for_each(|(second, first)| assert_descriptor(second, first));
}

fn assert_descriptor(second: &Node, first: &Descriptor) {
    assert_eq!(second.text("digest"), first.digest.to_string());
    assert_eq!(second.text("mediaType"), first.media_type);
    assert_eq!(second.texts("urls"), first.urls);
    let size = match second.field("size") {
        Some(Node::Word(number)) => number.parse().ok(),
        _ => None,
    };
    assert_eq!(size, Some(first.size));
    let platform = second.field("platform");
    assert_eq!(platform.is_some(), first.platform.is_some());
    if let (Some(second), Some(first)) = (platform, &first.platform) {
        let parts = ["os", "architecture", "variant"].map(|part| second.text(part));
        let variant = first.variant.as_deref().unwrap_or_default();
        assert_eq!(parts, [first.os.as_str(), first.architecture.as_str(), variant]);
    }
}

impl Node {
    /// The last value of a field that is not null.
    fn field(&self, name: &str) -> Option<&Node> {
        let Node::Object(entries) = self else { return None };
        let is_field = |key: &str| key.replace('ſ', "s").replace('\u{212a}', "k").eq_ignore_ascii_case(name);
        entries.iter().rev().find(|(key, value)| is_field(key) && !matches!(value, Node::Null)).map(|(_, value)| value)
    }

    fn text(&self, name: &str) -> &str {
        match self.field(name) {
            Some(Node::Text(text)) => text,
            Some(Node::Word(word)) => word,
            _ => "",
        }
    }

    fn list(&self, name: &str) -> &[Node] {
        match self.field(name) {
            Some(Node::List(list)) => list,
            _ => &[],
        }
    }

    fn texts(&self, name: &str) -> Vec<&str> {
        self.list(name).iter().map(|node| if let Node::Text(text) = node { text.as_str() } else { "" }).collect()
    }
}

fn read(bytes: &[u8]) -> Option<Node> {
    let mut reader = Reader { bytes, at: 0 };
    let node = reader.value(DEPTH)?;
    reader.space();
    (reader.at == bytes.len()).then_some(node)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| b" \t\r\n".contains(&byte)) {
            self.at += 1;
        }
    }

    /// The next byte that is no space.
    fn token(&mut self) -> Option<u8> {
        self.space();
        self.next()
    }

    fn value(&mut self, depth: usize) -> Option<Node> {
        let depth = depth.checked_sub(1)?;
        self.space();
        match self.peek()? {
            b'"' => self.string().map(Node::Text),
            b'[' => {
                self.at += 1;
                let mut list = Vec::new();
                self.space();
                if self.peek()? == b']' {
                    self.at += 1;
                    return Some(Node::List(list));
                }
                loop {
                    list.push(self.value(depth)?);
                    match self.token()? {
                        b',' => {}
                        b']' => return Some(Node::List(list)),
                        _ => return None,
                    }
                }
            }
            b'{' => {
                self.at += 1;
                let mut entries = Vec::new();
                self.space();
                if self.peek()? == b'}' {
                    self.at += 1;
                    return Some(Node::Object(entries));
                }
                loop {
                    self.space();
                    let key = self.string()?;
                    if self.token()? != b':' {
                        return None;
                    }
                    entries.push((key, self.value(depth)?));
                    match self.token()? {
                        b',' => {}
                        b'}' => return Some(Node::Object(entries)),
                        _ => return None,
                    }
                }
            }
            _ => {
                let start = self.at;
                while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) {
                    self.at += 1;
                }
                let word = std::str::from_utf8(&self.bytes[start..self.at]).ok()?;
                match word {
                    "" => None,
                    "null" => Some(Node::Null),
                    _ => Some(Node::Word(word.to_owned())),
                }
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        if self.next()? != b'"' {
            return None;
        }
        let mut text = String::new();
        loop {
            match self.next()? {
                b'"' => return Some(text),
                b'\\' => match self.next()? {
                    b'n' => text.push('\n'),
                    b't' => text.push('\t'),
                    b'r' => text.push('\r'),
                    b'b' => text.push('\u{8}'),
                    b'f' => text.push('\u{c}'),
                    b'u' => {
                        let unit = self.unit()?;
                        text.push(self.character(unit));
                    }
                    byte @ (b'"' | b'\\' | b'/') => text.push(char::from(byte)),
                    _ => return None,
                },
                byte if byte < 0x20 => return None,
                byte if byte.is_ascii() => text.push(char::from(byte)),
                _ => text.push(self.multibyte()),
            }
        }
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Option<u16> {
        let digits = std::str::from_utf8(self.bytes.get(self.at..self.at + 4)?).ok()?;
        let unit = digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16));
        self.at += 4;
        unit?.ok()
    }

    /// The character of a unit, with the low surrogate that may follow.
    fn character(&mut self, unit: u16) -> char {
        let start = self.at;
        if (0xd800..0xdc00).contains(&unit) && self.bytes[start..].starts_with(b"\\u") {
            self.at += 2;
            if let Some(low) = self.unit()
                && let Some(Ok(character)) = char::decode_utf16([unit, low]).next()
            {
                return character;
            }
            self.at = start;
        }
        char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER)
    }

    /// The character whose first byte was just read; a byte that starts none is replaced by itself.
    fn multibyte(&mut self) -> char {
        let start = self.at - 1;
        for length in 2..=4 {
            let character = self.bytes.get(start..start + length).and_then(|bytes| std::str::from_utf8(bytes).ok());
            if let Some(character) = character.and_then(|text| text.chars().next()) {
                self.at = start + length;
                return character;
            }
        }
        char::REPLACEMENT_CHARACTER
    }
}
