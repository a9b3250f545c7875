//! A stranger who connects first to a host's new listening ports.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Host;
use crate::lab::{enter, listening_ports_here};

/// Runs until dropped.
#[derive(Debug)]
pub struct Stranger {
    stop: Arc<AtomicBool>,
    connections: Arc<AtomicU32>,
    answered_bytes: Arc<AtomicU32>,
    threads: Vec<JoinHandle<()>>,
}

const CONNECTIONS_PER_PORT: usize = 8;

impl Stranger {
    /// Connects to each new port of `host`, from `from`, before the peer can; says `words`, and holds on.
    pub fn lurk(host: &Host, from: &Host, words: &'static [u8]) -> Self {
        let known = host.listening_ports();
        let stop = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(AtomicU32::new(0));
        let answered_bytes = Arc::new(AtomicU32::new(0));
        let (ports_out, ports_in) = std::sync::mpsc::channel();

        let (stop_watch, namespace) = (Arc::clone(&stop), host.namespace.clone());
        let watch = std::thread::spawn(move || {
            enter(&namespace).expect("the lab's namespace exists");
            let mut known = known;
            while !stop_watch.load(Ordering::Relaxed) {
                for port in listening_ports_here().into_iter().filter(|port| !known.contains(port)).collect::<Vec<_>>()
                {
                    known.push(port);
                    let _ = ports_out.send(port);
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });

        let (count, answers, address) = (Arc::clone(&connections), Arc::clone(&answered_bytes), IpAddr::from(host.v4));
        let namespace = from.namespace.clone();
        let connect = std::thread::spawn(move || {
            enter(&namespace).expect("the lab's namespace exists");
            let mut held = Vec::new();
            for port in ports_in {
                for _ in 0..CONNECTIONS_PER_PORT {
                    let target = SocketAddr::new(address, port);
                    let Ok(mut stream) = TcpStream::connect_timeout(&target, Duration::from_secs(2)) else { continue };
                    count.fetch_add(1, Ordering::Relaxed);
                    let _ = stream.write_all(words);
                    held.push(stream);
                }
            }
            for mut stream in held {
                let _ = stream.set_read_timeout(Some(Duration::from_millis(10)));
                let mut buffer = [0; 4096];
                if let Ok(bytes) = stream.read(&mut buffer) {
                    answers.fetch_add(u32::try_from(bytes).unwrap_or(u32::MAX), Ordering::Relaxed);
                }
            }
        });
        Self { stop, connections, answered_bytes, threads: vec![watch, connect] }
    }

    /// Connections and received bytes.
    pub fn leave(mut self) -> (u32, u32) {
        self.end();
        (self.connections.load(Ordering::Relaxed), self.answered_bytes.load(Ordering::Relaxed))
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.end();
    }
}
