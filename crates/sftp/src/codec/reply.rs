//! Replies of a server (draft-ietf-secsh-filexfer-02, section 7).

use super::attributes::Attributes;
use super::bytes::Input;
use super::malformed::Malformed;
use super::status::Status;
use crate::limits::{MAX_EXTENSIONS, MAX_HANDLE_BYTES, MAX_PATH_BYTES};

/// What a server answers to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Success, or what failed.
    Status(Status),
    /// An open file or directory.
    Handle(Vec<u8>),
    /// Bytes of a file.
    Data(Data),
    /// Names of a directory, or where a link leads.
    Names(Vec<Name>),
    /// Attributes.
    Attributes(Attributes),
    /// The answer to an extended request.
    Extended(Vec<u8>),
}

/// Bytes of a file, in the packet that brought them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    packet: Vec<u8>,
    begin: usize,
}

impl Data {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.packet[self.begin..]
    }
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Its name, byte for byte. Nobody has checked it.
    pub name: Vec<u8>,
    /// Its attributes, as far as the server tells them.
    pub attributes: Attributes,
}

/// The first reply: the version, and what the server can beyond it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The version that it speaks.
    pub version: u32,
    /// Names and values of its extensions.
    pub extensions: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The number of the request that a packet without its length answers. Known before the packet is here in full.
pub fn id_of(head: [u8; HEAD_BYTES]) -> u32 {
    let [_, id @ ..] = head;
    u32::from_be_bytes(id)
}

/// Kind and number.
pub const HEAD_BYTES: usize = 5;

/// Decodes a packet without its length.
///
/// # Errors
/// It breaks the format of version 3, or a limit.
pub fn decode(packet: Vec<u8>) -> Result<(u32, Reply), Malformed> {
    let mut input = Input::new(&packet);
    let (kind, id) = (input.u8()?, input.u32()?);
    let reply = match kind {
        101 => Reply::Status(Status::take(input)?),
        102 => {
            let handle = input.string()?;
            if handle.len() > MAX_HANDLE_BYTES {
                return Err(Malformed("a handle is longer than 256 bytes"));
            }
            input.end()?;
            Reply::Handle(handle.to_vec())
        }
        103 => {
            let length = input.string()?.len();
            input.end()?;
            let begin = packet.len() - length;
            return Ok((id, Reply::Data(Data { packet, begin })));
        }
        104 => Reply::Names(names(input)?),
        105 => {
            let attributes = Attributes::take(&mut input)?;
            input.end()?;
            Reply::Attributes(attributes)
        }
        201 => Reply::Extended(packet[HEAD_BYTES..].to_vec()),
        _ => return Err(Malformed("it is of a kind that no server sends")),
    };
    Ok((id, reply))
}

fn names(mut input: Input<'_>) -> Result<Vec<Name>, Malformed> {
    let count = input.u32()?;
    // A count that the packet cannot hold is found when the packet ends; memory grows with what is there.
    let mut names = Vec::new();
    for _ in 0..count {
        let name = input.string()?;
        if name.len() > MAX_PATH_BYTES {
            return Err(Malformed("a name is longer than 16 KiB"));
        }
        // A line as `ls -l` prints it, for people.
        input.string()?;
        let attributes = Attributes::take(&mut input)?;
        names.push(Name { name: name.to_vec(), attributes });
    }
    input.end()?;
    Ok(names)
}

/// Decodes the first packet without its length.
///
/// # Errors
/// It is no greeting.
pub fn decode_greeting(packet: &[u8]) -> Result<Greeting, Malformed> {
    let mut input = Input::new(packet);
    if input.u8()? != 2 {
        return Err(Malformed("it is no greeting"));
    }
    let version = input.u32()?;
    let mut extensions = Vec::new();
    while !input.is_empty() {
        if extensions.len() == MAX_EXTENSIONS {
            return Err(Malformed("it offers too many extensions"));
        }
        extensions.push((input.string()?.to_vec(), input.string()?.to_vec()));
    }
    Ok(Greeting { version, extensions })
}
