//! The TLS 1.3 record layer after the handshake, with the keys of rustls.
//!
//! ```text
//! write: caller's block --AES-GCM--> out buffer (16 records) --one write(2)--> socket
//! read:  socket --one read(2)--> in buffer (17 records) --AES-GCM--> caller's block
//! ```
//! The record layer of rustls copies each byte twice, and allocates: with AES-128-GCM ours takes 36 to 38 % less processor
//! time (`docs/proof/zero-copy.md`, `cost_of_a_block`).
//!
//! A record is `23 3 3 length` and then, encrypted, content, content type and padding (RFC 8446, 5.2). The nonce is the
//! connection's IV xor the record's number: a lost, repeated, moved or changed record does not open.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, UnboundKey};
use aws_lc_rs::hmac;
use rustls::ConnectionTrafficSecrets;

use crate::control::{
    BROKE_OFF, CLOSE_NOTIFY, Heard, KEY_UPDATE, KeySchedule, TYPE_ALERT, TYPE_DATA, TYPE_HANDSHAKE, violation,
};
use crate::kernel_opener::KernelOpener;
use crate::kernel_sealer::KernelSealer;
use crate::limits;
use crate::transport::Link;

pub(crate) const TAG_KEY_BYTES: usize = 32;

/// No other use of the traffic keys has this label.
const TAG_KEY_LABEL: &[u8] = b"haul clear lane tags";

pub(crate) struct RecordKey {
    key: LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
    next_record: u64,
    /// The origin of `key` and `iv`, for the kernel. Wiped when dropped.
    secrets: ConnectionTrafficSecrets,
}

impl RecordKey {
    pub(crate) fn new((next_record, secrets): (u64, ConnectionTrafficSecrets)) -> io::Result<Self> {
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&aead::CHACHA20_POLY1305, key, iv),
            _ => return Err(io::Error::other("unknown cipher")),
        };
        let key =
            UnboundKey::new(algorithm, key.as_ref()).map_err(|_| io::Error::other("the cipher rejects its key"))?;
        let mut iv_bytes = [0; aead::NONCE_LEN];
        iv_bytes.copy_from_slice(iv.as_ref());
        Ok(RecordKey { key: LessSafeKey::new(key), iv: iv_bytes, next_record, secrets })
    }

    /// A key for later clear bytes of this direction: HMAC-SHA256 of the IV under the traffic key, which it does not reveal.
    pub(crate) fn tag_key(secrets: &ConnectionTrafficSecrets) -> io::Result<[u8; TAG_KEY_BYTES]> {
        let (key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv }
            | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
            | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
            _ => return Err(io::Error::other("unknown cipher")),
        };
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()));
        context.update(TAG_KEY_LABEL);
        context.update(iv.as_ref());
        let mut tag_key = [0; TAG_KEY_BYTES];
        tag_key.copy_from_slice(context.sign().as_ref());
        Ok(tag_key)
    }

    #[cfg(feature = "fuzzing")]
    pub(crate) fn seal_any(&mut self, header: &[u8], inner: &mut Vec<u8>) {
        let nonce = self.next_nonce().expect("record numbers are left");
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), inner).expect("a record is far below the limit");
    }

    /// The nonce of the next record: the number only grows, so none repeats under one key.
    fn next_nonce(&mut self) -> io::Result<aead::Nonce> {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.next_record.to_be_bytes()) {
            *byte ^= number;
        }
        self.next_record = self.next_record.checked_add(1).ok_or_else(|| io::Error::other("no record numbers left"))?;
        Ok(aead::Nonce::assume_unique_for_key(nonce))
    }
}

/// Encrypts and sends; useless after a failed write.
pub(crate) struct Sealer {
    key: RecordKey,
    schedule: Arc<KeySchedule>,
    records_per_key: u64,
    out: Box<[u8]>,
    /// The sealed records at the start of `out`.
    sealed_bytes: usize,
    /// The unfinished record's plaintext behind them.
    open_bytes: usize,
    /// The peer may miss bytes: no more may be sent.
    broken: bool,
}

impl Sealer {
    pub(crate) fn new(key: RecordKey, schedule: Arc<KeySchedule>) -> Sealer {
        Sealer {
            key,
            schedule,
            records_per_key: limits::RECORDS_PER_KEY,
            out: vec![0; OUT_BYTES].into_boxed_slice(),
            sealed_bytes: 0,
            open_bytes: 0,
            broken: false,
        }
    }

    #[cfg(test)]
    pub(crate) fn change_keys_after_records(&mut self, records: u64) {
        self.records_per_key = records;
    }

    pub(crate) fn write(&mut self, link: &Link, bytes: &[u8]) -> io::Result<usize> {
        self.check_whole()?;
        let mut rest = bytes;
        while !rest.is_empty() && self.sealed_bytes < BATCH_BYTES {
            let room = limits::RECORD_PLAIN_BYTES - self.open_bytes;
            let part;
            (part, rest) = rest.split_at(room.min(rest.len()));
            if part.len() == limits::RECORD_PLAIN_BYTES {
                self.prepare_key()?;
                self.seal(TYPE_DATA, part)?;
            } else {
                let start = self.sealed_bytes + HEADER_BYTES + self.open_bytes;
                self.out[start..start + part.len()].copy_from_slice(part);
                self.open_bytes += part.len();
                if self.open_bytes == limits::RECORD_PLAIN_BYTES {
                    self.seal_open_record()?;
                }
            }
        }
        if self.sealed_bytes >= BATCH_BYTES {
            self.send(link)?;
        }
        Ok(bytes.len() - rest.len())
    }

    pub(crate) fn flush(&mut self, link: &Link) -> io::Result<()> {
        self.check_whole()?;
        if self.open_bytes > 0 {
            self.seal_open_record()?;
        }
        self.send(link)
    }

    /// Sends all, and empty records: about `bytes` on the wire.
    pub(crate) fn pad(&mut self, link: &Link, bytes: usize) -> io::Result<()> {
        self.flush(link)?;
        // The content type stands before the padding (RFC 8446, 5.4).
        let mut inner = [0; limits::RECORD_PLAIN_BYTES];
        inner[0] = TYPE_DATA;
        let mut left = bytes.min(limits::PADDING_BYTES_MAX);
        while left > 0 {
            let part = left.min(inner.len());
            self.prepare_key()?;
            self.seal(PADDING, &inner[..part])?;
            self.send(link)?;
            left -= part;
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.broken && self.sealed_bytes == 0 && self.open_bytes == 0
    }

    /// Sends all, and the proper end; without it the peer reports a truncation.
    pub(crate) fn finish(&mut self, link: &Link) -> io::Result<()> {
        self.flush(link)?;
        self.seal(TYPE_ALERT, &CLOSE_NOTIFY)?;
        self.send(link)
    }

    fn check_whole(&self) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "an earlier write to this connection failed"));
        }
        Ok(())
    }

    fn send(&mut self, link: &Link) -> io::Result<()> {
        // True until the last byte is out.
        self.broken = true;
        link.write_all(&self.out[..self.sealed_bytes])?;
        self.broken = false;
        let open = self.sealed_bytes + HEADER_BYTES;
        self.out.copy_within(open..open + self.open_bytes, HEADER_BYTES);
        self.sealed_bytes = 0;
        Ok(())
    }

    /// Changes a due key, announced under the old one, between data records.
    fn prepare_key(&mut self) -> io::Result<()> {
        if self.key.next_record < self.records_per_key && !self.schedule.is_change_asked() {
            return Ok(());
        }
        self.seal(TYPE_HANDSHAKE, &KEY_UPDATE)?;
        self.key = RecordKey::new(self.schedule.next_to_send()?)?;
        Ok(())
    }

    /// Sends all, and gives the key to the kernel, which seals from here on. `Unsupported`: refused, and this goes on.
    pub(crate) fn hand_over(&mut self, link: &Link) -> io::Result<KernelSealer> {
        self.flush(link)?;
        let RecordKey { next_record, secrets, .. } = &self.key;
        KernelSealer::begin(link, *next_record, secrets, Arc::clone(&self.schedule), self.records_per_key)
    }

    fn seal_open_record(&mut self) -> io::Result<()> {
        let open_bytes = std::mem::take(&mut self.open_bytes);
        // A key update moves the open record, once in 128 GiB.
        let place = self.sealed_bytes + HEADER_BYTES;
        let before = self.sealed_bytes;
        if self.key.next_record >= self.records_per_key || self.schedule.is_change_asked() {
            let plain = self.out[place..place + open_bytes].to_vec();
            self.prepare_key()?;
            debug_assert!(self.sealed_bytes > before);
            return self.seal(TYPE_DATA, &plain);
        }
        let record = &mut self.out[before..before + record_bytes(open_bytes)];
        let (header, record) = record.split_at_mut(HEADER_BYTES);
        write_header(header, open_bytes);
        let (content, type_and_tag) = record.split_at_mut(open_bytes);
        let nonce = self.key.next_nonce()?;
        self.key
            .key
            .seal_in_place_scatter(nonce, Aad::from(&*header), content, &[TYPE_DATA], type_and_tag)
            .map_err(|_| io::Error::other("encryption failed"))?;
        self.sealed_bytes = before + record_bytes(open_bytes);
        Ok(())
    }

    /// Encrypts from the caller's memory. `OUT_BYTES` leaves room.
    fn seal(&mut self, content_type: u8, plain: &[u8]) -> io::Result<()> {
        let record = &mut self.out[self.sealed_bytes..][..record_bytes(plain.len())];
        let (header, record) = record.split_at_mut(HEADER_BYTES);
        write_header(header, plain.len());
        let (content, type_and_tag) = record.split_at_mut(plain.len());
        let nonce = self.key.next_nonce()?;
        self.key
            .key
            .seal_out_of_place_scatter(nonce, Aad::from(&*header), plain, content, &[content_type], type_and_tag)
            .map_err(|_| io::Error::other("encryption failed"))?;
        self.sealed_bytes += record_bytes(plain.len());
        Ok(())
    }
}

pub(crate) struct Opener {
    key: RecordKey,
    schedule: Arc<KeySchedule>,
    /// Grows once the deadline is lifted: the peer has said what it wants.
    input: Box<[u8]>,
    /// Sealed bytes from the socket.
    closed: Range<usize>,
    /// Opened bytes that wait for the caller.
    plain: Range<usize>,
    ended: bool,
    broken: Option<(io::ErrorKind, String)>,
}

impl Opener {
    pub(crate) fn new(key: RecordKey, schedule: Arc<KeySchedule>, early: &[u8]) -> Opener {
        let mut input = vec![0; limits::FIRST_READ_BYTES.max(early.len())].into_boxed_slice();
        input[..early.len()].copy_from_slice(early);
        Opener { key, schedule, input, closed: 0..early.len(), plain: 0..0, ended: false, broken: None }
    }

    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.input.len()
    }

    /// Waits for a byte, and takes what is there. 0: the proper end.
    pub(crate) fn read(&mut self, link: &Link, target: &mut [u8]) -> io::Result<usize> {
        if let Some((kind, text)) = &self.broken {
            return Err(io::Error::new(*kind, text.clone()));
        }
        let mut filled = 0;
        let outcome = self.read_records(link, target, &mut filled);
        match outcome {
            Ok(()) => Ok(filled),
            // Nothing is lost: the caller may wait longer.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
            Err(error) => {
                self.broken = Some((error.kind(), error.to_string()));
                if filled > 0 { Ok(filled) } else { Err(error) }
            }
        }
    }

    /// Gives the key to the kernel, which opens from here on. `Unsupported`: refused, or bytes were read ahead; this goes
    /// on.
    pub(crate) fn hand_over(&self, link: &Link) -> io::Result<KernelOpener> {
        if !self.read_ahead().is_some_and(<[u8]>::is_empty) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "records were read ahead, which the kernel would miss",
            ));
        }
        let RecordKey { next_record, secrets, .. } = &self.key;
        KernelOpener::begin(link, *next_record, secrets, Arc::clone(&self.schedule))
    }

    /// Sealed bytes read ahead, unless opened ones wait.
    pub(crate) fn read_ahead(&self) -> Option<&[u8]> {
        let is_clean = self.plain.is_empty() && !self.ended && self.broken.is_none();
        is_clean.then(|| &self.input[self.closed.clone()])
    }

    pub(crate) fn has_input(&self) -> bool {
        self.ended || self.broken.is_some() || !self.plain.is_empty() || !matches!(self.next_record(), Ok(None))
    }

    fn read_records(&mut self, link: &Link, target: &mut [u8], filled: &mut usize) -> io::Result<()> {
        loop {
            let room = &mut target[*filled..];
            let ready = self.plain.len().min(room.len());
            room[..ready].copy_from_slice(&self.input[self.plain.start..][..ready]);
            self.plain.start += ready;
            *filled += ready;
            if *filled == target.len() || self.ended {
                return Ok(());
            }
            match self.next_record()? {
                Some(record) => *filled += self.open(record, &mut target[*filled..])?,
                None if *filled > 0 => return Ok(()),
                None => self.fill(link)?,
            }
        }
    }

    /// The next record's place, once whole. A wrong header is found before.
    fn next_record(&self) -> io::Result<Option<Range<usize>>> {
        let closed = &self.input[self.closed.clone()];
        let Some(header) = closed.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let cipher_bytes = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[..3] != HEADER_START || cipher_bytes > limits::RECORD_CIPHER_BYTES || cipher_bytes <= TAG_BYTES {
            return Err(violation("a damaged record header"));
        }
        let whole = HEADER_BYTES + cipher_bytes;
        Ok((closed.len() >= whole).then(|| self.closed.start..self.closed.start + whole))
    }

    /// Opens one record, into `target` if it fits with its content type, else in place. Returns the bytes in `target`.
    fn open(&mut self, record: Range<usize>, target: &mut [u8]) -> io::Result<usize> {
        let nonce = self.key.next_nonce()?;
        self.closed.start = record.end;
        let (header, cipher) = self.input[record.clone()].split_at_mut(HEADER_BYTES);
        let aad = Aad::from(&*header);
        let inner_bytes = cipher.len() - TAG_BYTES;
        if target.len() >= inner_bytes {
            let (content, tag) = cipher.split_at(inner_bytes);
            let inner = &mut target[..inner_bytes];
            self.key
                .key
                .open_separate_gather(nonce, aad, content, tag, inner)
                .map_err(|_| violation("a record that does not decrypt"))?;
            return match content_of(inner)? {
                (TYPE_DATA, content_bytes) => {
                    self.schedule.has_sent(content_bytes);
                    Ok(content_bytes)
                }
                (other, content_bytes) => {
                    let control = inner[..content_bytes].to_vec();
                    self.control(other, &control).map(|()| 0)
                }
            };
        }
        let inner =
            self.key.key.open_in_place(nonce, aad, cipher).map_err(|_| violation("a record that does not decrypt"))?;
        match content_of(inner)? {
            (TYPE_DATA, content_bytes) => {
                let start = record.start + HEADER_BYTES;
                self.plain = start..start + content_bytes;
                self.schedule.has_sent(content_bytes);
            }
            (other, content_bytes) => {
                let control = inner[..content_bytes].to_vec();
                self.control(other, &control)?;
            }
        }
        Ok(0)
    }

    fn control(&mut self, content_type: u8, content: &[u8]) -> io::Result<()> {
        match self.schedule.hear(content_type, content)? {
            Heard::End => self.ended = true,
            Heard::NewKey(next_record, secrets) => self.key = RecordKey::new((next_record, secrets))?,
        }
        Ok(())
    }

    /// Does one read(2), behind a partial record, which moves to the front.
    fn fill(&mut self, link: &Link) -> io::Result<()> {
        if self.input.len() < limits::READ_BYTES && !link.has_deadline() {
            let mut larger = vec![0; limits::READ_BYTES].into_boxed_slice();
            larger[..self.closed.len()].copy_from_slice(&self.input[self.closed.clone()]);
            self.input = larger;
        } else {
            self.input.copy_within(self.closed.clone(), 0);
        }
        self.closed = 0..self.closed.len();
        let received = link.read(&mut self.input[self.closed.end..])?;
        if received == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, BROKE_OFF));
        }
        self.closed.end += received;
        Ok(())
    }
}

const HEADER_BYTES: usize = 5;
const TAG_BYTES: usize = 16;
/// Every record begins so ("TLS 1.2" for old middle boxes).
const HEADER_START: [u8; 3] = [TYPE_DATA, 3, 3];
/// From "change cipher spec" to data (RFC 8446, 5.1).
const TYPES: std::ops::RangeInclusive<u8> = 20..=TYPE_DATA;
const PADDING: u8 = 0;

/// A batch with this many sealed bytes is sent.
const BATCH_BYTES: usize = limits::RECORDS_PER_WRITE * record_bytes(limits::RECORD_PLAIN_BYTES);
/// Behind a batch less one byte come up to three records: a key update, a data record, an alert.
const OUT_BYTES: usize = BATCH_BYTES + 3 * record_bytes(limits::RECORD_PLAIN_BYTES);

const fn record_bytes(plain_bytes: usize) -> usize {
    plain_bytes + limits::RECORD_OVERHEAD_BYTES
}

fn write_header(header: &mut [u8], plain_bytes: usize) {
    let cipher_bytes = (record_bytes(plain_bytes) - HEADER_BYTES) as u16;
    header[..3].copy_from_slice(&HEADER_START);
    header[3..].copy_from_slice(&cipher_bytes.to_be_bytes());
}

/// The length of a handshake's first record, once whole. rustls refuses anything else.
pub(crate) fn first_to_judge(input: &[u8]) -> Option<usize> {
    let header = input.first_chunk::<HEADER_BYTES>()?;
    let content_bytes = usize::from(u16::from_be_bytes([header[3], header[4]]));
    let is_record = TYPES.contains(&header[0]) && header[1] == 3 && content_bytes <= limits::RECORD_CIPHER_BYTES;
    let bytes = if is_record { HEADER_BYTES + content_bytes } else { input.len() };
    (input.len() >= bytes).then_some(bytes)
}

/// Content type and length. The type is the last byte that is not zero, before the padding.
fn content_of(inner: &[u8]) -> io::Result<(u8, usize)> {
    let content_bytes =
        inner.iter().rposition(|byte| *byte != 0).ok_or_else(|| violation("a record without content type"))?;
    if content_bytes > limits::RECORD_PLAIN_BYTES {
        return Err(violation("a record above 16 KiB"));
    }
    Ok((inner[content_bytes], content_bytes))
}
