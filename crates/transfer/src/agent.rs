//! Runs `haul agent`, the far side over standard input and output that ssh starts.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use haul_job::{Error, Fault};
use haul_net::{Door, Identity, Listener, Stream};
use haul_sys::standard_streams::{Input, Output};
use haul_wire::PROTOCOL_VERSION;
use haul_wire::banner::AGENT;

use crate::serving::{self, Ports};
use haul_channel::grant::Grant;
use haul_copy::rights;
use haul_kept::faults;
use haul_kept::network_classes;
use haul_kept::surroundings::Surroundings;
use haul_reach::lane_door::{LOOPBACK, open_door, open_door_on};
use haul_reach::lane_rendezvous::LaneRendezvous;

/// The options of `haul agent`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentOptions {
    /// `--port-range FIRST-LAST`.
    pub port_range: Option<(u16, u16)>,
    /// `--relay PORT`: carries one lane between standard input/output and this local port.
    pub relay_port: Option<u16>,
}

/// Runs the far side over standard input and output. Returns the exit code; the initiator has the error in words.
pub fn agent(options: &AgentOptions) -> u8 {
    // A program that runs from a descriptor would be shown by that number.
    let _ = haul_sys::process::set_name(c"haul");
    let result = match options.relay_port {
        Some(port) => relay(port),
        None => serve(options),
    };
    u8::from(result.is_err())
}

fn serve(options: &AgentOptions) -> Result<(), Error> {
    rights::guard_process();
    // The old limit of open files works, too.
    let _ = haul_sys::process::raise_open_file_limit();
    let identity = Arc::new(Identity::generate().map_err(|error| faults::net_error(&error))?);
    let rendezvous = Arc::new(LaneRendezvous::default());
    let policies = network_classes::policies(&Surroundings::of_process().network_files).unwrap_or_default();
    let door = open_door(&identity, &rendezvous, options.port_range, Arc::clone(&policies));
    // Lanes inside ssh sessions need a port on this host, even if other hosts may use none.
    let relay_door = if door.is_none() { Listener::bind_to(LOOPBACK).ok() } else { None };
    let relay_door = relay_door.and_then(|listener| open_door_on(listener, &identity, &rendezvous, policies));
    let open = door.as_ref().map_or(0, Door::port);
    let relay = relay_door.as_ref().map_or(open, Door::port);
    let ports = Ports { open, relay, ..Ports::default() };
    greet().map_err(|error| Error::new(Fault::Protocol, "cannot write to standard output").because(error))?;
    // Both ends belong to one user, who may send data in the clear.
    let grant = Grant { clear: true, ..Grant::default() };
    serving::serve_control(
        standard_streams()?,
        &identity,
        &rendezvous,
        ports,
        &grant,
        &Surroundings::of_process(),
        None,
    )
}

/// The first line tells the peer where the shell's noise ends.
fn greet() -> io::Result<()> {
    Output.write_all(format!("{AGENT} {PROTOCOL_VERSION}\n").as_bytes())
}

fn standard_streams() -> Result<Stream, Error> {
    let own = |fd: io::Result<OwnedFd>| {
        fd.map_err(|error| Error::new(Fault::Protocol, "cannot use standard input and output").because(error))
    };
    let input = own(Input::open().and_then(|input| input.as_fd().try_clone_to_owned()))?;
    let output = own(Output.as_fd().try_clone_to_owned())?;
    Stream::plain_pipes(input, output, None)
        .map_err(|error| Error::new(Fault::Protocol, "cannot use standard input and output").because(error))
}

/// Carries one lane between this ssh session and the agent's port, TLS from end to end.
fn relay(port: u16) -> Result<(), Error> {
    let failed = |error: io::Error| Error::new(Fault::Network, "cannot relay a lane").because(error);
    let socket = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).map_err(failed)?;
    let mut input = Input::open().map_err(failed)?;
    greet().map_err(failed)?;
    let mut to_socket = socket.try_clone().map_err(failed)?;
    std::thread::Builder::new()
        .name("relay-in".into())
        .spawn(move || {
            // The agent must see the end of this direction; the other goes on.
            let _ = pump(&mut input, &mut to_socket);
            let _ = to_socket.shutdown(Shutdown::Write);
        })
        .map_err(failed)?;
    // The thread above may wait for its input for ever.
    pump(&mut &socket, &mut Output).map_err(failed)
}

fn pump(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; haul_wire::limits::BLOCK_BYTES];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return to.flush();
        }
        to.write_all(&buffer[..read])?;
        to.flush()?;
    }
}
