//! The content of a file that counts, whatever is done to the file and whenever its events arrive. The property runs a
//! small file system next to [`DirectoryFiles`]: content that was never complete is never seen, and complete content
//! stays until the file has been absent.

use proptest::prelude::*;

use super::*;

const QUIET: Duration = Duration::from_millis(100);
const NAME: &str = "a.yaml";

/// A name in a directory, its content, and the events that have not been handled yet.
struct World {
    files: DirectoryFiles<Vec<u8>, String>,
    now: Instant,
    content: Option<Vec<u8>>,
    writing: bool,
    inode: u64,
    written: u64,
    at: Instant,
    pending: Vec<Change>,
    /// Everything that was the whole of the file once.
    whole: Vec<Vec<u8>>,
    away_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Open,
    Write,
    Close,
    MoveIn,
    Delete,
    Touch,
    Deliver,
    List,
    Read,
    ReadDuring(u8),
    Wait(u16),
    Overflow,
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            files: DirectoryFiles::new(QUIET),
            now,
            content: None,
            writing: false,
            inode: 0,
            written: 0,
            at: now,
            pending: Vec::new(),
            whole: Vec::new(),
            away_since: Some(now),
        }
    }

    fn changed(&mut self, change: Change) {
        self.pending.push(change);
        (self.written, self.at) = (self.written + 1, self.now);
    }

    fn act(&mut self, act: Act) {
        match act {
            // With O_CREAT and O_TRUNC; only one writes at a time.
            Act::Open if self.writing => {}
            Act::Open => {
                self.writing = true;
                match self.content.replace(Vec::new()) {
                    None => {
                        (self.inode, self.away_since) = (self.inode + 1, None);
                        self.changed(Change::Created);
                    }
                    Some(old) if old.is_empty() => {}
                    Some(_) => self.changed(Change::Modified),
                }
            }
            Act::Write if self.writing => {
                let next = u8::try_from(self.written % 251).expect("small");
                self.content.as_mut().expect("open").push(next);
                self.changed(Change::Modified);
            }
            Act::Close if self.writing => {
                self.writing = false;
                self.whole.extend(self.content.clone());
                self.changed(Change::Closed);
            }
            Act::Write | Act::Close => {}
            Act::MoveIn => {
                let whole = vec![255, u8::try_from(self.written % 251).expect("small")];
                self.whole.push(whole.clone());
                (self.content, self.writing, self.away_since) = (Some(whole), false, None);
                self.inode += 1;
                self.changed(Change::MovedIn);
            }
            Act::Delete if self.content.take().is_some() => {
                (self.writing, self.away_since) = (false, Some(self.now));
                self.changed(Change::Removed);
            }
            Act::Delete => {}
            Act::Touch if self.content.is_some() => self.changed(Change::Attributes),
            Act::Touch => {}
            Act::Deliver => self.deliver(),
            Act::List => self.list(),
            Act::Read => self.read(None),
            Act::ReadDuring(which) => self.read(Some(which)),
            Act::Wait(millis) => self.now += Duration::from_millis(millis.into()),
            // During a write, nothing that follows could show that the file is incomplete.
            Act::Overflow if !self.writing => {
                self.pending.clear();
                self.files.distrust(self.now);
                self.list();
            }
            Act::Overflow => {}
        }
    }

    fn deliver(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            self.files.happened(OsStr::new(NAME), change, self.now);
        }
    }

    fn ident(&self) -> FileIdentity {
        let size = self.content.as_ref().map_or(0, |content| content.len() as u64);
        let written = (0, i64::try_from(self.written).expect("small"));
        FileIdentity { device: 1, inode: self.inode, size, modified: written, changed: written }
    }

    fn list(&mut self) {
        let rested = self.at + Duration::from_secs(2) <= self.now;
        let listed = self.content.as_ref().map(|_| (NAME.into(), ListedFile { ident: self.ident(), rested }));
        self.files.listed(&listed.into_iter().collect(), false, self.now);
        self.deliver();
    }

    fn read(&mut self, during: Option<u8>) {
        let due = self.files.due(self.now);
        let outcome = match self.content.clone() {
            None => ReadOutcome::Absent,
            Some(text) if text.is_empty() => ReadOutcome::Bad(Some(self.ident()), "empty".to_owned()),
            Some(text) => ReadOutcome::Good(self.ident(), Arc::new(text)),
        };
        if let Some(which) = during {
            self.act([Act::Open, Act::Write, Act::MoveIn, Act::Delete][usize::from(which % 4)]);
        }
        self.deliver();
        for due in due {
            self.files.read(&due, outcome.clone(), self.now);
        }
    }

    fn good(&self) -> Option<Vec<u8>> {
        self.files.good(OsStr::new(NAME)).map(|good| good.to_vec())
    }

    /// Nothing more happens to the file; it is read until nothing is due.
    fn settle(&mut self) {
        for _ in 0..6 {
            self.now += Duration::from_millis(150);
            self.list();
            self.read(None);
        }
    }
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => Just(Act::Open), 4 => Just(Act::Write), 3 => Just(Act::Close), 2 => Just(Act::MoveIn),
        2 => Just(Act::Delete), 1 => Just(Act::Touch), 3 => Just(Act::Deliver), 2 => Just(Act::List), 6 => Just(Act::Read),
        2 => any::<u8>().prop_map(Act::ReadDuring), 3 => (0..250u16).prop_map(Act::Wait), 1 => Just(Act::Wait(2500)),
        1 => Just(Act::Overflow),
    ];
    proptest::collection::vec(act, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_partial_write_is_seen_and_none_looks_like_a_deletion(acts in acts()) {
        let mut world = World::new();
        let mut before = None;
        for act in acts {
            world.act(act);
            let good = world.good();
            if let Some(good) = &good {
                prop_assert!(world.whole.contains(good), "{good:?} was never the whole of it");
            }
            let away = world.away_since.is_some_and(|since| since + QUIET <= world.now);
            prop_assert!(before.is_none() || good.is_some() || away, "it was taken for gone after {act:?}");
            before = good;
        }
        world.settle();
        if !world.writing {
            let now = world.content.clone();
            match now.filter(|content| !content.is_empty()) {
                Some(content) => prop_assert_eq!(world.good(), Some(content)),
                None => prop_assert_eq!(world.files.iter().count(), usize::from(world.content.is_some())),
            }
            prop_assert!(world.files.is_known());
        }
    }
}

fn one(world: &World) -> &FileState<Vec<u8>, String> {
    world.files.iter().next().expect("one file").1
}

#[test]
fn a_written_file_counts_at_once_and_a_cut_one_leaves_what_was_good() {
    let mut world = World::new();
    for act in [Act::Open, Act::Write, Act::Deliver, Act::Read] {
        world.act(act);
        assert_eq!(world.good(), None);
    }
    assert!(one(&world).is_held());
    [Act::Write, Act::Close, Act::Deliver, Act::Read].into_iter().for_each(|act| world.act(act));
    let whole = world.good().expect("known at once");
    // An editor truncates the file, and the power fails before it writes.
    [Act::Open, Act::Close, Act::Deliver, Act::Read].into_iter().for_each(|act| world.act(act));
    assert_eq!((world.good(), one(&world).is_held()), (Some(whole.clone()), false));
    assert_eq!(one(&world).problem(world.now, QUIET), None, "it may be over at once");
    world.act(Act::Wait(100));
    assert_eq!(one(&world).problem(world.now, QUIET).map(String::as_str), Some("empty"));
    // The file is being written for long: that is reported, and changes nothing.
    [Act::Open, Act::Write, Act::Deliver, Act::Wait(60_000), Act::List, Act::Read]
        .into_iter()
        .for_each(|a| world.act(a));
    assert_eq!((world.good(), one(&world).is_written_long(world.now)), (Some(whole), true));
}

#[test]
fn a_new_file_of_a_strange_name_rests_first() {
    let now = Instant::now();
    let mut files: DirectoryFiles<(), ()> = DirectoryFiles::new(QUIET);
    for name in ["sedXq1", "web.yaml~", "4913", "web.yaml", "b.JSON"] {
        files.happened(OsStr::new(name), Change::Closed, now);
    }
    let due = |at| files.due(at).into_iter().map(|due| due.name).collect::<Vec<_>>();
    assert_eq!(due(now), ["b.JSON", "web.yaml"]);
    assert_eq!(due(now + QUIET).len(), 5);
    assert_eq!(files.next(now), Some(now));
}
