//! The ranges of a blob, and the connections over which they are fetched: drops finished ones, judges the line, and
//! opens others. Reads no bytes; [`BlobStream`] calls it after every event.

use std::sync::Arc;

use futures::FutureExt as _;
use tokio::time::Instant;
use url::Url;

use super::stream::BlobStream;
use crate::part::{BlobPart, RangeLease};
use crate::range_request::{OpenFuture, RangeRequest};
use crate::session::patiently;

impl BlobStream {
    /// Drops connections that are done, judges the line, and opens those that may be opened.
    pub(super) fn schedule(&mut self) {
        self.retire();
        if self.parts.is_empty() && self.frontier == self.size {
            self.finished = true;
            return;
        }
        self.judge();
        self.grow();
        if self.parts.is_empty() {
            // The next stretch is the head at once. If memory or other connections are not available, it is all the
            // rest.
            let part = (self.pace.level() > 1).then(|| self.further()).flatten();
            let part = part.unwrap_or_else(|| BlobPart::new(self.frontier, self.size, false, None));
            self.frontier = part.end;
            self.parts.push_back(part);
        }
        let wanted = self.pace.level() as usize;
        let mut active = self.active();
        for n in 0..self.parts.len() {
            if self.parts[n].is_idle() && (n == 0 || active < wanted) {
                let open = self.ask(&self.parts[n], n == 0, self.target.clone());
                self.parts[n].open(open, self.attempts.host());
                active += 1;
            }
        }
    }

    /// Removes heads whose bytes were all handed out, and connections that have delivered their part.
    fn retire(&mut self) {
        if let [head, next, ..] = self.parts.make_contiguous()
            && head.from == head.end
            && head.until() > Some(head.end)
            && next.is_untouched(head.end)
        {
            // The head's connection delivers this stretch anyway, and no other connection has begun it.
            let received = head.extend(next.end);
            let host = head.host;
            self.pace.received(received);
            self.session.count(host, received);
            self.parts.remove(1);
        }
        for part in &mut self.parts {
            if part.from == part.end && (part.end < self.size || part.until() > Some(part.end)) && part.is_reading() {
                part.done();
            }
        }
        while self.parts.front().is_some_and(|head| head.is_done() && head.queue.is_empty()) {
            self.parts.pop_front();
            self.watch.begin();
        }
        // Fewer connections than there are parts: the last ones are given back.
        while self.parts.len() > 1
            && self.unfinished() > self.pace.level() as usize
            && let Some(last) = self.parts.back()
            && !last.is_active()
            && last.is_untouched(self.parts[self.parts.len() - 2].end)
        {
            self.frontier = last.from;
            self.parts.pop_back();
        }
    }

    fn judge(&mut self) {
        let before = self.pace.level();
        let head_left = self.parts.front().map_or(0, |head| head.end - head.from);
        let left = if self.parts.len() < 2 { head_left } else { 0 } + (self.size - self.frontier);
        let seen = self.session.ranges(self.attempts.host()).seen(Instant::now());
        if let Some(learnt) = self.pace.tick(Instant::now(), left, seen) {
            self.learn(learnt);
        }
        let level = self.pace.level();
        if level != before {
            tracing::debug!(
                request = self.asked,
                host = self.host(),
                level,
                offset = self.offset,
                "changing the number of connections"
            );
        }
    }

    /// Adds parts while there are fewer connections than there should be.
    fn grow(&mut self) {
        let wanted = self.pace.level() as usize;
        if wanted < 2 {
            // The head continues to the end, if its connection does.
            if let [head] = self.parts.make_contiguous()
                && head.until() == Some(self.size)
                && head.end < self.size
            {
                let (host, received) = (head.host, head.extend(self.size));
                self.pace.received(received);
                self.session.count(host, received);
                self.frontier = self.size;
            }
            return;
        }
        if let [head] = self.parts.make_contiguous()
            && !head.closed
            && head.is_reading()
            && head.end == self.size
        {
            let cut = head.from + self.pace.chunk();
            if self.size.saturating_sub(cut) < self.pace.chunk() {
                return;
            }
            head.end = cut;
            self.frontier = cut;
        }
        while self.frontier < self.size && self.unfinished() < wanted {
            let Some(part) = self.further() else {
                self.pace.starved();
                if let [head] = self.parts.make_contiguous()
                    && head.until() == Some(self.size)
                {
                    let (host, received) = (head.host, head.extend(self.size));
                    self.pace.received(received);
                    self.session.count(host, received);
                    self.frontier = self.size;
                }
                return;
            };
            self.frontier = part.end;
            self.parts.push_back(part);
        }
    }

    /// Returns the number of unfinished parts.
    fn unfinished(&self) -> usize {
        self.parts.iter().filter(|part| part.from < part.end).count()
    }

    /// The next stretch, with memory for its bytes and the right to a connection.
    fn further(&self) -> Option<BlobPart> {
        let left = self.size - self.frontier;
        let chunk = self.pace.chunk();
        let length = if left < chunk + chunk / 2 { left } else { chunk };
        let client = self.session.client.options();
        let connection = self.session.ranges(self.attempts.host()).connection()?;
        let least = client.ranges.chunk.0.min(length);
        let mut length = length;
        loop {
            if let Some(memory) = client.memory.try_take(usize::try_from(length).ok()?) {
                let held = RangeLease { _memory: memory, connection: Some(connection) };
                return Some(BlobPart::new(self.frontier, self.frontier + length, true, Some(held)));
            }
            if length <= least {
                return None;
            }
            length = (length / 2).max(least);
        }
    }

    /// Asks for what is missing of a part at `target`, or at the host where that is none.
    pub(super) fn ask(&self, part: &BlobPart, whole_will_do: bool, target: Option<Url>) -> OpenFuture {
        let host = self.attempts.host();
        let whole = whole_will_do && self.no_ranges == Some(host);
        let ask = RangeRequest {
            session: Arc::clone(&self.session),
            host,
            digest: self.digest.clone(),
            size: self.size,
            from: if whole { 0 } else { part.from },
            end: (part.closed && !whole).then_some(part.end),
            need: part.from,
            whole_will_do,
            target,
        };
        patiently(self.session.patience(&self.attempts), ask.send()).boxed()
    }
}
