//! Blobs by digest.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use futures::{Stream, stream};
use oci::Digest;
use tokio::sync::mpsc;

use crate::client::{answer, empty};
use crate::error::unless;
use crate::{Client, Error, ErrorKind, Labels, Lease, Result, pb};
use pb::content::{WriteAction, WriteContentRequest};

/// Bytes of a blob in one message: 1 MiB.
const CHUNK: usize = 1024 * 1024;

impl Client {
    /// Labels of a blob; `None`: there is no such blob.
    ///
    /// # Errors
    /// The call failed.
    pub async fn blob_labels(&self, digest: &Digest) -> Result<Option<Labels>> {
        let subject = digest.to_string();
        let request = pb::content::InfoRequest { digest: subject.clone() };
        let info = unless(ErrorKind::NotFound, answer("Content.Info", &subject, self.content().info(request)).await)?;
        let Some(info) = info else { return Ok(None) };
        Ok(Some(info.info.ok_or_else(|| empty("Content.Info", &subject))?.labels))
    }

    /// Returns true if a blob is there and its bytes can be read. A power cut may leave a record without its file: containerd's database
    /// can reach the disk before the name of the file does.
    ///
    /// # Errors
    /// The call failed.
    pub async fn is_readable(&self, digest: &Digest) -> Result<bool> {
        const CALL: &str = "Content.Read";
        let subject = digest.to_string();
        let request = pb::content::ReadContentRequest { digest: subject.clone(), offset: 0, size: 1 };
        let opened = answer(CALL, &subject, self.content().read(request)).await;
        let Some(mut parts) = unless(ErrorKind::NotFound, opened)? else { return Ok(false) };
        let first = parts.message().await.map_err(|status| Error::of_status(CALL, &subject, &status));
        Ok(unless(ErrorKind::NotFound, first)?.is_some())
    }

    /// Returns a verified blob of at most `max_bytes`, or `None` if there is no such blob.
    ///
    /// # Errors
    /// A call failed, the blob is longer, or its bytes do not have the digest.
    pub async fn read_blob(&self, digest: &Digest, max_bytes: usize) -> Result<Option<Vec<u8>>> {
        const CALL: &str = "Content.Read";
        let subject = digest.to_string();
        let request = pb::content::ReadContentRequest { digest: subject.clone(), offset: 0, size: 0 };
        let opened = answer(CALL, &subject, self.content().read(request)).await;
        let Some(mut parts) = unless(ErrorKind::NotFound, opened)? else { return Ok(None) };
        let mut bytes = Vec::new();
        loop {
            let part = parts.message().await.map_err(|status| Error::of_status(CALL, &subject, &status));
            // An unknown digest may be reported with the first part only.
            let Some(part) = unless(ErrorKind::NotFound, part)? else { return Ok(None) };
            let Some(part) = part else { break };
            if bytes.len() + part.data.len() > max_bytes {
                let message = format!("longer than {max_bytes} bytes");
                return Err(Error::new(ErrorKind::Invalid, CALL, &subject, message));
            }
            bytes.extend_from_slice(&part.data);
        }
        let actual = digest.algorithm().digest(&bytes);
        if actual != *digest {
            let message = format!("its bytes have the digest {actual}");
            return Err(Error::new(ErrorKind::Invalid, CALL, &subject, message));
        }
        Ok(Some(bytes))
    }
}

impl Lease {
    /// Writes a blob with these labels. Of one that is there already the labels are set, and the others stay; either way the
    /// lease holds it.
    ///
    /// # Errors
    /// A call failed, or the bytes do not have the digest.
    pub async fn write_blob(&self, digest: &Digest, bytes: &[u8], labels: &Labels) -> Result<()> {
        const CALL: &str = "Content.Write";
        let subject = digest.to_string();
        // Of this lease alone, so that no other writer's unfinished blob is met.
        let reference = format!("{}-{subject}", self.id());
        let written = match self.send_blob(CALL, &reference, &subject, bytes, labels).await {
            // What an earlier attempt of this lease left is not continued: blobs that are written here are short.
            Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unavailable) => {
                let request = pb::content::AbortRequest { r#ref: reference.clone() };
                let aborted = answer("Content.Abort", &reference, self.content().abort(request)).await;
                unless(ErrorKind::NotFound, aborted)?;
                self.send_blob(CALL, &reference, &subject, bytes, labels).await
            }
            other => other,
        };
        if unless(ErrorKind::AlreadyExists, written)?.is_none() && !self.keep_blob(digest, labels).await? {
            self.send_blob(CALL, &reference, &subject, bytes, labels).await?;
        }
        Ok(())
    }

    /// Sets labels of a blob that has a record; its other labels are kept. Returns false if the blob must be written after all: its
    /// record had no bytes, and is deleted.
    async fn keep_blob(&self, digest: &Digest, labels: &Labels) -> Result<bool> {
        if self.is_readable(digest).await? {
            self.set_blob_labels(digest, labels).await?;
            return Ok(true);
        }
        let subject = digest.to_string();
        let request = pb::content::DeleteContentRequest { digest: subject.clone() };
        let deleted = answer("Content.Delete", &subject, self.content().delete(request)).await;
        unless(ErrorKind::NotFound, deleted)?;
        Ok(false)
    }

    /// Sets labels of a blob that is there; its other labels stay.
    ///
    /// # Errors
    /// The call failed; there is no such blob.
    pub async fn set_blob_labels(&self, digest: &Digest, labels: &Labels) -> Result<()> {
        if labels.is_empty() {
            return Ok(());
        }
        let subject = digest.to_string();
        let info = pb::content::Info { digest: subject.clone(), size: 0, labels: labels.clone() };
        let paths = labels.keys().map(|key| format!("labels.{key}")).collect();
        let update_mask = Some(pb::types::FieldMask { paths });
        let request = pb::content::UpdateRequest { info: Some(info), update_mask };
        answer("Content.Update", &subject, self.content().update(request)).await.map(drop)
    }

    /// Writes a blob from a file that has all of it. Of one that is there already the labels are set; either way the lease holds
    /// it.
    ///
    /// # Errors
    /// A call failed, the file cannot be read, or its bytes do not have the digest.
    pub async fn write_file(&self, digest: &Digest, file: File, labels: &Labels) -> Result<()> {
        let file = Arc::new(file);
        let written = self.send_file(digest, &file, labels).await;
        if unless(ErrorKind::AlreadyExists, written)?.is_none() && !self.keep_blob(digest, labels).await? {
            self.send_file(digest, &file, labels).await?;
        }
        Ok(())
    }

    async fn send_file(&self, digest: &Digest, file: &Arc<File>, labels: &Labels) -> Result<()> {
        const CALL: &str = "Content.Write";
        let subject = digest.to_string();
        let reference = format!("{}-{subject}", self.id());
        let unreadable = |error: &std::io::Error| Error::new(ErrorKind::Failed, CALL, &subject, error.to_string());
        let total = file.metadata().map_err(|error| unreadable(&error))?.len();
        let (sender, mut parts) = mpsc::channel(1);
        let messages = stream::poll_fn(move |context| parts.poll_recv(context));
        let head = WriteContentRequest {
            action: WriteAction::Write.into(),
            r#ref: reference,
            total: i64::try_from(total).unwrap_or(i64::MAX),
            expected: subject.clone(),
            ..WriteContentRequest::default()
        };
        let (labels_at_end, file) = (labels.clone(), Arc::clone(file));
        let reading = tokio::task::spawn_blocking(move || {
            let (mut offset, mut count) = (0_u64, 0_usize);
            while offset < total {
                #[expect(clippy::cast_possible_truncation, reason = "a chunk at most")]
                let mut data = vec![0; (total - offset).min(CHUNK as u64) as usize];
                file.read_exact_at(&mut data, offset)?;
                let at = i64::try_from(offset).unwrap_or(i64::MAX);
                offset += data.len() as u64;
                let mut message = WriteContentRequest { offset: at, data, ..head.clone() };
                if offset == total {
                    message.action = WriteAction::Commit.into();
                    message.labels.clone_from(&labels_at_end);
                }
                count += 1;
                // A receiver that stops reading reports the reason itself.
                if sender.blocking_send(message).is_err() {
                    break;
                }
            }
            Ok::<_, std::io::Error>(count)
        });
        let written = self.answered(CALL, &subject, messages).await;
        let read = reading.await.map_err(|_| Error::new(ErrorKind::Failed, CALL, &subject, "the reader panicked"))?;
        let sent = read.map_err(|error| unreadable(&error))?;
        if written? < sent {
            return Err(Error::new(ErrorKind::Unavailable, CALL, &subject, "the answers end before the blob does"));
        }
        Ok(())
    }

    async fn send_blob(
        &self,
        call: &'static str,
        reference: &str,
        digest: &str,
        bytes: &[u8],
        labels: &Labels,
    ) -> Result<()> {
        let mut messages: Vec<WriteContentRequest> = Vec::new();
        let mut offset = 0;
        for chunk in bytes.chunks(CHUNK) {
            messages.push(WriteContentRequest {
                action: WriteAction::Write.into(),
                r#ref: reference.to_owned(),
                total: length(bytes),
                expected: digest.to_owned(),
                offset,
                data: chunk.to_owned(),
                labels: Labels::new(),
            });
            offset += length(chunk);
        }
        match messages.last_mut() {
            Some(last) => {
                last.action = WriteAction::Commit.into();
                last.labels.clone_from(labels);
            }
            None => return Err(Error::new(ErrorKind::Invalid, call, digest, "no bytes")),
        }
        let expected = messages.len();
        if self.answered(call, digest, stream::iter(messages)).await? < expected {
            return Err(Error::new(ErrorKind::Unavailable, call, digest, "the answers end before the blob does"));
        }
        Ok(())
    }

    /// Sends the messages of a blob, and counts the answers.
    async fn answered(
        &self,
        call: &'static str,
        digest: &str,
        messages: impl Stream<Item = WriteContentRequest> + Send + 'static,
    ) -> Result<usize> {
        let mut answers = answer(call, digest, self.content().write(messages)).await?;
        let mut count = 0;
        while answers.message().await.map_err(|status| Error::of_status(call, digest, &status))?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

fn length(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).unwrap_or(i64::MAX)
}
