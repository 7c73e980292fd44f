//! The ring between the thread that inflates and the one that unpacks.

use base::lock::Mutex;

use super::*;
use oci::{Algorithm, Digest};

fn new(budget: &MemoryBudget) -> (RingWriter, RingReader) {
    ring(budget, &[], Progress::every(1, |_| {}))
}

fn byte(at: usize) -> u8 {
    u8::try_from(at % 251).expect("below 251")
}

fn feed(writer: &mut RingWriter, total: usize) -> Result<(), Stopped> {
    let mut at = 0;
    while at < total {
        let mut buffer = writer.buffer()?;
        let n = (total - at).min(BUFFER - at % 7);
        for (i, b) in buffer[..n].iter_mut().enumerate() {
            *b = byte(at + i);
        }
        writer.send(buffer, n)?;
        at += n;
    }
    Ok(())
}

#[test]
fn bytes_come_in_order_and_once_and_are_hashed_by_who_waits() {
    // One with spare memory, one that has none beyond the least.
    for total in [64 << 20, 0] {
        let budget = MemoryBudget::new(total);
        let hash = Arc::new(TarHash::new(Algorithm::Sha256));
        let chores: [Arc<dyn Chore>; 1] = [Arc::clone(&hash) as Arc<dyn Chore>];
        let told = Arc::new(Mutex::new(0));
        let into = Arc::clone(&told);
        let progress = Progress::every(1 << 20, move |done| *into.lock() = done);
        let (mut writer, mut reader) = ring(&budget, &chores, progress);
        writer.hash_with(&hash);
        let total = BUFFER * MOST * 3 + 17;
        let thread = std::thread::spawn(move || {
            feed(&mut writer, total).expect("the reader stays");
            assert!((1..=MOST).contains(&writer.ring.lock().made), "buffers are used again");
            writer.end().expect("the reader stays");
        });
        let mut got = Vec::new();
        reader.read_to_end(&mut got).expect("reads");
        thread.join().expect("ends");
        assert_eq!(got.len(), total);
        assert!(got.iter().enumerate().all(|(i, b)| *b == byte(i)));
        assert_eq!(reader.read(&mut [0; 4]).expect("the end stays the end"), 0);
        assert_eq!(hash.finish(), Some(Digest::sha256(&got)));
        assert!(*told.lock() > 4 << 20);
    }
}

#[test]
fn little_needs_no_second_thread() {
    let budget = MemoryBudget::new(64 << 20);
    let (mut writer, mut reader) = new(&budget);
    let started = Arc::new(Mutex::new(false));
    let into = Arc::clone(&started);
    writer.start_with(move || *into.lock() = true);
    feed(&mut writer, BUFFER * (LEAST - 1)).expect("fits");
    assert!(!*started.lock());
    feed(&mut writer, BUFFER * 2).expect("there is spare memory");
    assert!(*started.lock());
    writer.end().expect("the reader stays");
    assert_eq!(reader.read_to_end(&mut Vec::new()).expect("reads"), BUFFER * (LEAST + 1));
}

#[test]
fn a_lost_writer_is_no_end() {
    let budget = MemoryBudget::new(0);
    let (mut writer, mut reader) = new(&budget);
    feed(&mut writer, 10).expect("fits");
    drop(writer);
    assert!(reader.read_to_end(&mut Vec::new()).is_err());
    let (writer, mut reader) = new(&budget);
    writer.fail(io::Error::other("bad"));
    assert_eq!(reader.read(&mut [0; 4]).expect_err("fails").to_string(), "bad");
    assert!(reader.read(&mut [0; 4]).is_err(), "it stays so");
}

#[test]
fn a_lost_reader_ends_the_writer() {
    let budget = MemoryBudget::new(0);
    let (mut writer, reader) = new(&budget);
    let thread = std::thread::spawn(move || feed(&mut writer, BUFFER * (MOST + 2)));
    drop(reader);
    assert!(thread.join().expect("no panic").is_err());
}

#[tokio::test]
async fn spare_buffers_are_given_back_when_others_wait() {
    let budget = MemoryBudget::new(BUFFER * 4);
    // A quarter is for windows.
    let (mut writer, mut reader) = new(&budget);
    feed(&mut writer, BUFFER * (LEAST + 1)).expect("there is some to spare");
    let mut waiting = Box::pin(budget.reserve(budget.pull(), 1, BUFFER * 3));
    assert!(futures::poll!(&mut waiting).is_pending());
    assert!(budget.try_take(1).is_none(), "who waits goes first");
    while !reader.fill_buf().expect("reads").is_empty() {
        let n = reader.fill_buf().expect("reads").len();
        reader.consume(n);
        if futures::poll!(&mut waiting).is_ready() {
            return;
        }
    }
    panic!("the spare buffer was kept");
}
