//! `haul serve`: one port, and behind it the far side of any number of sessions.
//!
//! ```text
//!   key at the door    in the list of authorised keys, or a session expects its lanes; else refused in the handshake
//!   lane               to the session that expects it, else closed
//!   control            the list is asked again: key, directory, rights -> a session in a thread of its own,
//!                      whose directory must not hold the daemon's own files now
//! ```

use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use haul_job::{AskedPaths, Error, Fault};
use haul_net::policy::Found;
use haul_net::{Door, DoorOptions, Identity, KeyGreeter, Listener, Policies, PublicKey, ShutdownHandle, Stream};
use haul_transfer::class_policy::ClassPolicy;
use haul_transfer::own::Weight;
use haul_transfer::standard_streams::Output;
use haul_transfer::{Grant, LaneRendezvous, Surroundings, Visit, trusted_keys};
use haul_wire::lane::Hello;

use crate::allowance::{Allowance, Allowances};
use crate::authority::{self, Authority};
use crate::authorized::Authorized;
use crate::limits;
use crate::listening::{self, Handed, Port};
use crate::log::{Client, Field, Form, Log, WriteLine, escaped};
use crate::networks::NetworkFiles;
use crate::own_files::OwnPaths;
use crate::registrar::{Registrar, Standing};
use crate::revoked;
use crate::sessions::{NoRoom, Sessions};
use crate::web::{self, WebOptions};

/// The options of `haul serve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `--listen ADDR:PORT`. Without it, every address.
    pub listen: Option<SocketAddr>,
    /// `--port PORT`, at every address.
    pub port: u16,
    /// `--identity FILE`: the daemon's own key, made if missing.
    pub identity: Option<PathBuf>,
    /// `--authorized-keys FILE`
    pub authorized_keys: Option<PathBuf>,
    /// `--check`: judges the settings, and opens nothing.
    pub check: bool,
    /// `--quiet`: logs only warnings.
    pub quiet: bool,
    /// `--log-files`: logs each entry of a copy.
    pub log_files: bool,
    /// `--json`: the form of the log.
    pub form: Form,
    /// `--paths`: the addresses named to clients, and dialled from for them.
    pub paths: AskedPaths,
    /// `--networks FILE` instead of [`haul_transfer::network_classes::SYSTEM_FILE`].
    pub networks: Option<PathBuf>,
    /// The web's ports.
    pub web: WebOptions,
    /// `--policy FILE` instead of [`haul_transfer::class_policy::SYSTEM_FILE`].
    pub class_policy: Option<PathBuf>,
}

/// The wishes of signals.
pub struct Signals<'a> {
    /// Whether to end.
    pub stop: &'a dyn Fn() -> bool,
    /// Whether to look at the files now. Each call takes the wish away.
    pub look: &'a dyn Fn() -> bool,
}

/// Serves until the signal to stop. Prints what clients need to know; `log` gets the lines of the log.
pub fn serve(options: &Options, log: Box<WriteLine>, signals: &Signals<'_>) -> Result<(), Error> {
    let log = Arc::new(Log::new(options.quiet, options.form, log));
    haul_transfer::guard_process();
    // The old limit works, too, for fewer sessions.
    let _ = haul_transfer::raise_open_file_limit();
    let identity_file = identity_file(options)?;
    let identity = match options.check && !identity_file.exists() {
        true => Arc::new(Identity::generate().map_err(|error| Error::new(Fault::Authentication, error.to_string()))?),
        false => own_identity(&identity_file, &log)?,
    };
    let list = list_file(options)?;
    let told = Arc::clone(&log);
    let surroundings = surroundings(options);
    let own = Arc::new(own_paths(&identity_file, &list, &options.web, &surroundings));
    let say = Arc::new(move |text: &str, matters| told.tell(text, matters));
    let authority = Arc::new(Authority::new(&list, Arc::clone(&own), say));
    if check_list(&list, &authority, options, &log)? {
        authority.list();
        if options.check {
            log.say(&format!("the list of keys {} can be used", list.display()));
        }
    }
    check_class_policy(options, &log)?;
    let mut networks = NetworkFiles::open(options.networks.as_ref(), &log)?;
    let mut handed = if options.check { Handed::default() } else { listening::handed()? };
    let for_web = (std::mem::take(&mut handed.http), std::mem::take(&mut handed.https));
    let web = web::prepare(&options.web, for_web, &own, &authority)?;
    if options.check {
        log.say("the settings are good");
        return Ok(());
    }
    let (listener, others, held_by) = match listening::port(handed.haul, options.listen, options.port)? {
        Port::Opened(listener) => (listener, Vec::new(), ""),
        Port::HandedOver(listener, others) => (listener, others, ", a socket that was handed over"),
    };
    let address = listener.local_addr();
    if let Some(why) = surroundings.why_nothing_is_kept() {
        log.warn(&format!("warning: {why}"));
    }
    let house = Arc::new(House {
        port: address.port(),
        paths: options.paths.clone(),
        identity,
        own,
        authority: Arc::clone(&authority),
        allowances: Allowances::open(
            surroundings.state.as_ref().map(|state| state.join("key-days")),
            SystemTime::now(),
        ),
        surroundings,
        rendezvous: Arc::default(),
        sessions: Arc::default(),
        logs_files: options.log_files,
        log: Arc::clone(&log),
    });
    let policies = networks.policies();
    let mut addresses = vec![address];
    addresses.extend(others.iter().map(Listener::local_addr));
    let doors = std::iter::once(listener).chain(others);
    let doors: Vec<Door> =
        doors.map(|listener| open_door(listener, &house, Arc::clone(&policies))).collect::<Result<_, _>>()?;
    let mut web = web.open(policies, &house.identity, &log)?;
    if !options.quiet {
        introduce(&house.identity.public(), address, &list, &log);
    }
    for address in addresses {
        log.say(&format!("listening on {address}{held_by}"));
    }
    while !(signals.stop)() {
        std::thread::park_timeout(limits::STOP_POLL);
        let at_once = (signals.look)();
        if at_once {
            look_now(options, &authority, &log);
        }
        if networks.look(at_once, &log)
            && let Some(web) = &web
        {
            web.follow(&networks.policies().networks(), &log);
        }
        if let Some(web) = &mut web {
            web.look(at_once, &log);
        }
        networks.write_down(false, &log);
        house.allowances.write_down(false, &log);
        log.flush();
    }
    end(&doors, &house, web);
    networks.write_down(true, &log);
    house.allowances.write_down(true, &log);
    Ok(())
}

/// Reads early what is otherwise read when needed, for the log.
fn look_now(options: &Options, authority: &Authority, log: &Log) {
    log.say("looking again at keys, certificate, network classes and policies");
    authority.list();
    if let Err(error) = check_class_policy(options, log) {
        log.warn(&error.what);
    }
}

fn surroundings(options: &Options) -> Surroundings {
    let mut surroundings = Surroundings::of_process();
    if let (Some(file), Some(first)) = (&options.class_policy, surroundings.policy_files.first_mut()) {
        first.clone_from(file);
    }
    if let (Some(file), Some(first)) = (&options.networks, surroundings.network_files.first_mut()) {
        first.clone_from(file);
    }
    surroundings
}

fn own_paths(identity: &Path, list: &Path, web: &WebOptions, surroundings: &Surroundings) -> OwnPaths {
    let of_certificate = web.certificate_key.as_ref().or(web.certificate.as_ref());
    OwnPaths::new(identity, list)
        .with_secret(of_certificate.map(PathBuf::as_path))
        .with_obeyed(web.certificate.as_deref())
        .with_obeyed(Some(&revoked::file_beside(list)))
        .with_those_of(surroundings)
}

fn check_class_policy(options: &Options, log: &Log) -> Result<(), Error> {
    let bad = |why: String| Error::new(Fault::Usage, why).try_this("haul-policy(5) shows what a policy may hold");
    for file in surroundings(options).policy_files {
        match ClassPolicy::check(&file) {
            Ok(Some(told)) => log.say(&format!("policy {told}")),
            Ok(None) if options.class_policy.as_ref() == Some(&file) => {
                return Err(bad(format!("there is no policy {}", file.display())));
            }
            Ok(None) => {}
            Err(error) => return Err(bad(error.to_string())),
        }
    }
    Ok(())
}

struct House {
    port: u16,
    paths: AskedPaths,
    identity: Arc<Identity>,
    own: Arc<OwnPaths>,
    authority: Arc<Authority>,
    allowances: Allowances,
    surroundings: Surroundings,
    rendezvous: Arc<LaneRendezvous>,
    sessions: Arc<Sessions>,
    logs_files: bool,
    log: Arc<Log>,
}

fn open_door(listener: Listener, house: &Arc<House>, policies: Arc<Policies>) -> Result<Door, Error> {
    let (at_door, inside) = (Arc::clone(house), Arc::clone(house));
    let admit = Arc::new(move |key: &PublicKey, from, connection: &_| at_door.admits(key, from, connection));
    let deliver = Arc::new(move |stream, key, from| House::receive(&inside, stream, key, from));
    let ciphers = haul_net::preferred_ciphers(None);
    let greeter = KeyGreeter { identity: Arc::clone(&house.identity), admit, ciphers, deliver };
    Door::open(listener, greeter, &DoorOptions { policies, ..DoorOptions::default() })
        .map_err(|error| Error::new(Fault::Network, error.to_string()))
}

impl House {
    fn admits(&self, key: &PublicKey, from: SocketAddr, connection: &ShutdownHandle) -> bool {
        let known = self.line(key).is_some() || self.rendezvous.expects_key(key, &|| connection.is_shut_down());
        if !known {
            // The operator copies the whole key into the list.
            self.log.refused_stranger(&format!("refused {from}: the key {key} is not in the list"), key, from);
        }
        known
    }

    fn line(&self, key: &PublicKey) -> Option<Authorized> {
        let list = self.authority.list();
        let line = list.get(key)?;
        Some(Authorized { grant: Grant { key: Some(*key), ..line.grant.clone() }, ..line.clone() })
    }

    /// The deadline of the handshake still holds.
    fn receive(self: &Arc<Self>, mut stream: Stream, key: PublicKey, from: SocketAddr) {
        match LaneRendezvous::read_hello(&mut stream) {
            Ok(hello @ (Hello::Lane(_) | Hello::Link { .. } | Hello::Control)) if stream.over_limit().is_some() => {
                self.turn_away(stream, &key, from, hello == Hello::Control);
            }
            // An unexpected lane is closed without a word.
            Ok(Hello::Lane(hello)) => drop(self.rendezvous.deliver(stream, &key, hello)),
            Ok(Hello::Link { session }) => drop(self.rendezvous.deliver_link(stream, &key, session)),
            Ok(Hello::Control) => self.open_session(stream, key, from),
            Ok(Hello::OtherVersion(version)) => {
                let text = format!("turned away {from}: it speaks version {version} of the protocol");
                match self.line(&key) {
                    Some(_) => self.log.turned_away(&text, &key, from),
                    None => self.log.refused_stranger(&text, &key, from),
                }
                haul_transfer::turn_away_version(stream, version);
            }
            Err(_) => {}
        }
    }

    /// Closes a connection beyond its class's limit. Only a control channel can be told why.
    fn turn_away(&self, stream: Stream, key: &PublicKey, from: SocketAddr, is_control: bool) {
        let why = stream.over_limit().map(ToString::to_string).unwrap_or_default();
        self.log.turned_away(&format!("turned away {from}: {why}"), key, from);
        if is_control {
            let error = Error::new(Fault::Busy, "the daemon takes no more connections of your network")
                .because(why)
                .try_this("try again later, or with fewer connections: --lanes 2");
            haul_transfer::turn_away(stream, &error);
        }
    }

    fn open_session(self: &Arc<Self>, stream: Stream, key: PublicKey, from: SocketAddr) {
        stream.tune_for_words(haul_transfer::NEAR_RTT_US);
        let Some(Authorized { grant, limits, comment, .. }) = self.line(&key) else {
            // The other host of a copy between two hosts may bring lanes only. So may a key that left the list during a session.
            let text =
                format!("refused {from}: the key {key} is not in the list; it may bring lanes, but start no session");
            self.log.refused_stranger(&text, &key, from);
            let error = Error::new(Fault::Authentication, "the daemon does not let our key in")
                .try_this("ask its operator to add it to the list of authorised keys: haul key show prints it");
            return haul_transfer::turn_away(stream, &error);
        };
        let name = if comment.is_empty() { key.to_string() } else { comment };
        let class = stream.class();
        let grant = narrowed(grant, &class);
        let who = Client { name, from, class: class.name().map(str::to_owned) };
        let allowance = self.allowances.of(&key, limits);
        let entered = self.sessions.enter(key, limits, stream.shutdown_handle()).map_err(no_room);
        let place = match entered {
            Ok(place) => place,
            Err(error) => {
                self.log.turned_away(&format!("turned away {who}: {}", error.what), &key, from);
                return haul_transfer::turn_away(stream, &error);
            }
        };
        let house = Arc::clone(self);
        let started = std::thread::Builder::new().name("session".to_owned()).spawn(move || {
            if stream.set_deadline(None).is_ok() {
                house.carry(stream, &grant, allowance, who, place);
            }
        });
        if let Err(error) = started {
            self.log.warn(&format!("cannot start a thread for a session: {error}"));
        }
    }

    fn carry(
        self: &Arc<Self>,
        stream: Stream,
        grant: &Grant,
        allowance: Arc<Allowance>,
        who: Client,
        place: crate::sessions::Place,
    ) {
        let (start, key) = (Instant::now(), place.key);
        // Mounts and links may have changed since the list was read.
        let standing = |house: &House, grant| Standing { grant, own: house.own.find() };
        let (house, class) = (Arc::clone(self), stream.class());
        // Each further job asks anew.
        let look = move || {
            let Authorized { grant, limits, .. } = house.line(&key)?;
            house.allowances.of(&key, limits);
            Some(standing(&house, narrowed(grant, &class)))
        };
        let registrar = match Registrar::start(standing(self, grant.clone()), look) {
            Ok(registrar) => registrar,
            Err(error) => return self.log.warn(&format!("cannot start a thread for a session: {error}")),
        };
        let clerk = place.clerk(who, registrar, allowance, Arc::clone(&self.log));
        let clerk = Arc::new(if self.logs_files { clerk.logging_entries() } else { clerk });
        let visit = Some(Arc::clone(&clerk) as Arc<dyn Visit>);
        let ports = haul_transfer::Ports { open: self.port, relay: 0, paths: self.paths.clone() };
        let result = haul_transfer::serve_control(
            stream,
            &self.identity,
            &self.rendezvous,
            ports,
            grant,
            &self.surroundings,
            visit,
        );
        match result {
            Ok(()) => clerk.tell_end("ended well", start.elapsed(), false),
            Err(error) => {
                let cause = error.cause.map(|cause| format!(": {cause}")).unwrap_or_default();
                clerk.tell_end(&format!("failed: {}{cause}", error.what), start.elapsed(), true);
            }
        }
    }
}

fn narrowed(grant: Grant, found: &Found) -> Grant {
    let terms = found.terms();
    let (may_read, may_write) = (terms.may_read(), terms.may_write());
    let is_narrower = !may_read || (!may_write && !grant.read_only);
    Grant {
        read_only: grant.read_only || !may_write,
        unreadable: grant.unreadable || !may_read,
        clear: grant.clear && terms.cipher.is_none_or(|floor| floor.allows(None)),
        network: found.name().filter(|_| is_narrower).map(str::to_owned),
        ..grant
    }
}

fn no_room(why: NoRoom) -> Error {
    match why {
        NoRoom::Daemon => Error::new(Fault::Busy, "the daemon has all the sessions it takes")
            .because(format!("{} are running", limits::MAX_SESSIONS)),
        NoRoom::Key(most) => Error::new(Fault::Busy, "this key has all the sessions it may have at the daemon")
            .because(format!("{most} are running")),
        NoRoom::Stopping => Error::new(Fault::Busy, "the daemon is being stopped"),
    }
    .try_this("try again later")
}

/// Stops accepting, lets sessions tell their peers, and cuts the others. Half of a copy stays for the next run.
fn end(doors: &[Door], house: &House, web: Option<web::Web>) {
    house.log.say("stopping");
    doors.iter().for_each(Door::close);
    house.sessions.stop();
    if let Some(web) = web {
        web.stop();
        house.log.flush();
    }
    if house.sessions.wait(limits::ORDERLY_STOP) > 0 {
        house.sessions.cut();
        let left = house.sessions.wait(limits::FORCED_STOP);
        if left > 0 {
            house.log.warn(&format!("{left} sessions did not end in time"));
        }
    }
    house.log.say("stopped");
}

fn identity_file(options: &Options) -> Result<PathBuf, Error> {
    options.identity.clone().or_else(|| Surroundings::of_process().config_file("host_ed25519")).ok_or_else(no_home)
}

fn own_identity(path: &Path, log: &Log) -> Result<Arc<Identity>, Error> {
    if !path.exists() {
        log.say(&format!("making the daemon's own key, {}", path.display()));
        return Ok(Arc::new(trusted_keys::generate_identity(path, false)?));
    }
    // Whoever replaces the key file makes clients trust his key.
    Ok(Arc::new(trusted_keys::load_identity(path, Weight::Secret)?))
}

fn list_file(options: &Options) -> Result<PathBuf, Error> {
    options
        .authorized_keys
        .clone()
        .or_else(|| Surroundings::of_process().config_file("authorized_keys"))
        .ok_or_else(no_home)
}

/// Refuses a list that others may write. A missing list may come later, unless an option named it; then false.
fn check_list(path: &Path, authority: &Authority, options: &Options, log: &Log) -> Result<bool, Error> {
    const LINE: &str = "a line is: ro root=/DIR ed25519:KEY NAME (or rw; what `haul key show` prints at the client; \
                        as root, user=NAME before it)";
    let failed = |cause: String| {
        Error::new(Fault::Authentication, format!("cannot use the list of keys {}", path.display())).because(cause)
    };
    match authority::check(path) {
        Ok((_, bad)) if options.check && !bad.is_empty() => {
            bad.iter().for_each(|bad| log.warn(&format!("{}: {bad}", escaped(path.as_os_str().as_encoded_bytes()))));
            let lines = if bad.len() == 1 { "a line lets" } else { "lines let" };
            let first = bad.first().map(ToString::to_string).unwrap_or_default();
            let others = bad.len().saturating_sub(1);
            let more = if others > 0 { format!(", and {others} more") } else { String::new() };
            Err(Error::new(Fault::Usage, format!("in the list of keys {} {lines} nobody in", path.display()))
                .because(format!("{first}{more}"))
                .try_this(LINE))
        }
        Ok((list, _)) => {
            authority.warn_of(&list);
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::NotFound && options.authorized_keys.is_none() => {
            log.warn(&format!("warning: the list of keys is empty until {} is made; {LINE}", path.display()));
            Ok(false)
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

fn no_home() -> Error {
    Error::new(Fault::Authentication, "there is no home directory to look for keys in")
        .try_this("set HOME, or name the files with --identity and --authorized-keys")
}

fn introduce(key: &PublicKey, address: SocketAddr, list: &Path, log: &Log) {
    let name = if address.ip().is_unspecified() { host_name() } else { address.ip().to_string() };
    let known = trusted_keys::host_name(&name, address.port());
    let text = format!(
        "fingerprint       {}\n\
         authorised keys   {}\n\
         at each client    haul key trust {known} {key}\n\
         or in its list    {known} {key}\n",
        key.fingerprint(),
        escaped(list.as_os_str().as_encoded_bytes()),
    );
    let fields = [
        ("fingerprint", Field::Text(key.fingerprint().to_string())),
        ("authorized_keys", Field::Text(escaped(list.as_os_str().as_encoded_bytes()))),
        ("known_hosts", Field::Text(format!("{known} {key}"))),
    ];
    if log.introduce(&format!("at each client: haul key trust {known} {key}"), &fields) {
        return;
    }
    // The daemon serves without standard output, too.
    let _ = Output.write_all(text.as_bytes());
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}
