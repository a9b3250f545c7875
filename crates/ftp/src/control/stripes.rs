//! Transfers with a striped server of GridFTP: a front end, and data nodes at addresses of their own.
//!
//! ```text
//! SPAS -> the data nodes              once, with the first login
//! up:   PASV, SPAS -> a connection to each data node; one carries the data of this transfer, and each hears its own end
//! down: PASV, OPTS RETR, SPOR (a port for each data node), RETR -> the data nodes connect here -> `Stripes` puts their blocks in order
//! ```
//! Only whole files come from all data nodes: of a part (ERET, REST), globus-gridftp-server 13 sends too much or nothing.
//! PASV goes before, since it gives the next SPAS or SPOR to one data node alone where the one before was another SPAS or SPOR.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use super::Control;
use super::blocks::number_list;
use super::data_port::unreached;
use super::named_hosts::named;
use crate::codec::command::Command;
use crate::codec::passive;
use crate::codec::reply::Reply;
use crate::limits::{MAX_STRIPES, STRIPE_BLOCK_BYTES};
use crate::refusal::{file_refusal, invalid};
use crate::stripes::Stripes;

impl Control {
    /// Notes what the server told of its data nodes with the first login.
    ///
    /// # Errors
    /// It names some that are not used.
    pub(crate) fn note_data_nodes(&self, reply: &Reply) -> io::Result<()> {
        if reply.code != 229 {
            return Ok(());
        }
        let is_alone = passive::stripes(&reply.lines, 1).is_some();
        let nodes = match self.data_nodes_of(reply) {
            // A server behind a NAT tells its inner address, and one behind ssh hardly knows its own.
            Err(_) if is_alone => return Ok(()),
            _ if is_alone && self.wire.is_pipe() => return Ok(()),
            nodes => nodes?,
        };
        let hosts: Vec<IpAddr> = nodes.iter().map(SocketAddr::ip).collect();
        if hosts != [self.host()] {
            self.habits.blocks.note_data_nodes(hosts);
        }
        Ok(())
    }

    /// The addresses of an answer to SPAS.
    pub(super) fn data_nodes_of(&self, reply: &Reply) -> io::Result<Vec<SocketAddr>> {
        let refused = |why: String| io::Error::new(ErrorKind::Unsupported, why);
        if reply.code != 229 {
            return Err(refused(format!("the server tells no addresses of its data nodes ({})", reply.shown())));
        }
        let told = passive::stripes(&reply.lines, MAX_STRIPES);
        let told =
            told.ok_or_else(|| refused(format!("the server names no data nodes, or more than {MAX_STRIPES}")))?;
        told.into_iter().map(|address| named(SocketAddr::V4(address), self.host())).collect()
    }

    /// Whether an address is that of the server, or of a data node that it has named.
    pub(super) fn is_of_server(&self, address: IpAddr) -> bool {
        address == self.host() || self.habits.blocks.data_nodes().contains(&address)
    }

    /// Begins to read a whole file from all data nodes, each over so many connections.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`]: the server does not do that.
    pub(crate) fn fetch_from_all(&mut self, command: Command, streams: u16) -> io::Result<Stripes> {
        self.settle()?;
        (self.kept, self.block_addresses) = (None, Vec::new());
        let (mut ports, mut addresses) = (Vec::new(), Vec::new());
        for _ in 0..self.habits.blocks.data_nodes().len() {
            let (port, address, _) = self.listen()?;
            ports.push(port);
            let IpAddr::V4(host) = address.ip() else { return Err(unreached("stripes have addresses of IPv4")) };
            addresses.push(number_list(host, address.port()));
        }
        let layout = format!(
            "RETR StripeLayout=Blocked;BlockSize={STRIPE_BLOCK_BYTES};Parallelism={streams},{streams},{streams};"
        );
        let questions = [
            Command::plain("MODE E"),
            Command::plain("PASV"),
            Command::new("OPTS", layout.as_bytes())?,
            Command::new("SPOR", addresses.join(" ").as_bytes())?,
        ];
        let before = questions.len();
        let commands: Vec<Command> = questions.into_iter().chain([command]).collect();
        self.send(&commands)?;
        let replies = (0..before).map(|_| self.final_reply()).collect::<io::Result<Vec<_>>>()?;
        if let Some(reply) = replies.iter().find(|reply| !reply.is_success()) {
            // The transfer itself may have begun in another way.
            self.is_broken = true;
            let why = format!("the server does not send from its data nodes ({})", reply.shown());
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        (self.is_extended, self.streams) = (true, streams);
        let mut reply = self.first_reply()?;
        if reply.code == STRIPE_COUNTS {
            reply = self.first_reply()?;
        }
        match reply.code {
            125 | 150 => Ok(Stripes::new(ports, streams, &self.habits)),
            425 | 426 => Err(unreached(&reply.shown())),
            _ if reply.is_preliminary() => {
                self.is_broken = true;
                Err(invalid(format!("the server answers in an unknown way ({})", reply.shown())))
            }
            _ => Err(file_refusal(&reply)),
        }
    }
}

/// Tells over how many connections each stripe comes. Each stripe tells it, too.
const STRIPE_COUNTS: u16 = 126;
