//! Hosts are network namespaces that threads keep alive. None has a name in the file system: the kernel removes all with the
//! process.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use haul_sys::namespace;

use crate::netem::{Namespaces, NetemError, WIRES};
use crate::plan::Plan;

/// A lab's hosts.
pub struct Hosts {
    hosts: Vec<Host>,
}

struct Host {
    name: String,
    jobs: SyncSender<Job>,
    thread_id: i32,
}

type Job = Box<dyn FnOnce() + Send>;

impl Hosts {
    /// Makes an empty namespace for every host.
    pub fn make(plan: &Plan) -> io::Result<Hosts> {
        let hosts = plan.hosts.iter().enumerate().map(|(number, host)| Host::make(number, &host.name));
        Ok(Hosts { hosts: hosts.collect::<io::Result<_>>()? })
    }

    /// Runs `work` on the host's thread, so sockets and devices are the host's.
    ///
    /// # Panics
    /// The host does not exist, or `work` panics.
    pub fn enter<T: Send + 'static>(&self, host: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, result) = sync_channel(1);
        let job: Job = Box::new(move || {
            let _ = sender.send(work());
        });
        self.host(host).jobs.send(job).expect("the thread of a host lives as long as the lab");
        result.recv().expect("the work panicked on its host")
    }

    /// Starts a command on a host, with only its user's rights.
    pub fn spawn(&self, host: &str, mut command: Command) -> io::Result<Child> {
        self.enter(host, move || {
            let spawner = std::thread::Builder::new().name("spawn".into()).spawn(move || {
                namespace::drop_ambient_capabilities()?;
                command.spawn()
            })?;
            spawner.join().expect("starting a command does not panic")
        })
    }

    /// Runs a setup program with all rights, and returns its output, also in an error.
    pub fn set_up(&self, host: &str, program: &str, args: &[&str], input: &str) -> io::Result<String> {
        let mut command = Command::new(program);
        command.args(args);
        let (program, input) = (program.to_owned(), input.to_owned());
        self.enter(host, move || run_to_end(&program, command, &input))
    }

    /// The name of the host for `ip link set ... netns`.
    pub fn reference(&self, host: &str) -> String {
        format!("/proc/{}/task/{}/ns/net", std::process::id(), self.host(host).thread_id)
    }

    /// A file like `/proc/net/dev` for this host.
    pub fn device_counters(&self, host: &str) -> PathBuf {
        format!("/proc/{}/task/{}/net/dev", std::process::id(), self.host(host).thread_id).into()
    }

    /// Names in the plan's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|host| host.name.as_str())
    }

    fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).unwrap_or_else(|| panic!("no host {name} in this lab"))
    }
}

impl Namespaces for Hosts {
    fn run(&self, host: &str, program: &str, args: &[&str]) -> Result<String, NetemError> {
        let result = match host {
            // The middle of wires lies in the lab's namespace.
            WIRES => {
                let mut command = Command::new(program);
                command.args(args);
                run_to_end(program, command, "")
            }
            _ => self.set_up(host, program, args, ""),
        };
        result.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                NetemError::NotStarted { host: host.to_owned(), program: program.to_owned(), error }
            }
            _ => NetemError::Failed {
                host: host.to_owned(),
                command: format!("{program} {}", args.join(" ")),
                stderr: error.to_string(),
            },
        })
    }

    fn reference(&self, host: &str) -> String {
        Hosts::reference(self, host)
    }
}

/// Other programs find the namespace by the thread's name.
pub fn thread_name(number: usize) -> String {
    format!("host-{number}")
}

impl Host {
    fn make(number: usize, name: &str) -> io::Result<Host> {
        let (jobs, queue) = sync_channel::<Job>(0);
        let (ready, made) = sync_channel(1);
        std::thread::Builder::new().name(thread_name(number)).spawn(move || {
            let made = namespace::new_network().map(|()| rustix::thread::gettid().as_raw_nonzero().get());
            let failed = made.is_err();
            if ready.send(made).is_ok() && !failed {
                serve(&queue);
            }
        })?;
        let thread_id = made.recv().unwrap_or_else(|_| Err(io::Error::other("the thread of a host ended")))?;
        Ok(Host { name: name.to_owned(), jobs, thread_id })
    }
}

fn serve(queue: &Receiver<Job>) {
    for job in queue {
        job();
    }
}

fn run_to_end(program: &str, mut command: Command, input: &str) -> io::Result<String> {
    use std::io::Write;
    use std::process::Stdio;

    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(io::ErrorKind::NotFound, format!("{program} is not installed (package iproute2)"))
        }
        _ => error,
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends early prints the reason itself.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{program}: {}", words.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
