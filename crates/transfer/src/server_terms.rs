//! Says what of a job's wishes for the network a server that is no haul cannot keep. The copy goes on.

use haul_job::{AskedClass, AskedPaths, Carriage, Job, Transport};

/// The connections to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connections {
    /// The server sends.
    ToRead,
    /// This process sends, and marks.
    ToWrite,
    /// This process sends what another haul sends it, which governs no more than its own lanes.
    ToPassOn,
    /// ssh makes them.
    BySsh,
}

impl Connections {
    pub(crate) fn of_target(job: &Job) -> Self {
        match job.sources.iter().all(|source| source.place.is_here()) {
            true => Self::ToWrite,
            false => Self::ToPassOn,
        }
    }
}

/// Of connections that take the first one of `--paths`.
pub(crate) fn not_kept(carriage: &Carriage, connections: Connections) -> Vec<String> {
    let mut told = not_kept_by_turns(carriage, connections);
    if connections != Connections::BySsh && matches!(&carriage.paths, AskedPaths::List(list) if list.len() > 1) {
        told.push("a server is reached over one path: the first one of --paths".to_owned());
    }
    told
}

/// Of connections that take all of `--paths` in turn.
pub(crate) fn not_kept_by_turns(carriage: &Carriage, connections: Connections) -> Vec<String> {
    let mut told: Vec<String> = of_class(carriage.service.class, connections).into_iter().map(str::to_owned).collect();
    if carriage.service.deadline.is_some() && connections != Connections::ToWrite {
        told.push("the other end is no haul: --by is a wish for which nothing can be asked here".to_owned());
    }
    if connections == Connections::BySsh {
        let ignored = [
            (carriage.congestion_control.is_some(), "--cc"),
            (carriage.window_bytes.is_some(), "--window"),
            (carriage.paths != AskedPaths::Auto, "--paths"),
            (carriage.transport != Transport::Tcp, "--transport"),
        ];
        let ignored: Vec<&str> = ignored.iter().filter(|(is_asked, _)| *is_asked).map(|(_, flag)| *flag).collect();
        if !ignored.is_empty() {
            told.push(format!("ssh makes the connections: {} without effect", ignored.join(", ")));
        }
    }
    told
}

fn of_class(class: AskedClass, connections: Connections) -> Option<&'static str> {
    match (class, connections) {
        (AskedClass::Normal, _) | (_, Connections::ToWrite) => None,
        (AskedClass::Background, Connections::ToRead) => Some(
            "a server sends as fast as it likes: --background takes one connection, and marks only what this host sends",
        ),
        (AskedClass::Background, Connections::BySsh) => {
            Some("ssh makes the connections: --background takes one of them, and marks nothing")
        }
        (AskedClass::Priority | AskedClass::Auto, Connections::ToRead) => Some(
            "a server sends as it likes, and only the sender of data can mark it: nothing is asked of the network for what comes from it",
        ),
        (AskedClass::Priority | AskedClass::Auto, Connections::BySsh) => {
            Some("ssh makes the connections: nothing is asked of the network for them")
        }
        (_, Connections::ToPassOn) => {
            Some("the class holds on the way to this host: from here to the server the data goes as any other")
        }
    }
}

#[cfg(test)]
mod tests {
    use haul_job::Service;

    use super::*;

    #[test]
    fn what_a_server_cannot_keep_is_said_and_nothing_else() {
        let usual = Carriage::default();
        assert_eq!(not_kept(&usual, Connections::ToRead).len() + not_kept(&usual, Connections::BySsh).len(), 0);
        let service = Service { class: AskedClass::Background, ..Service::default() };
        let background = Carriage { service, congestion_control: Some("reno".into()), ..usual };
        let [told] = &not_kept(&background, Connections::ToRead)[..] else { panic!("one sentence") };
        assert!(told.contains("one connection"), "{told}");
        let told = not_kept(&background, Connections::BySsh).join("; ");
        assert!(told.contains("marks nothing") && told.contains("--cc without effect"), "{told}");
    }

    #[test]
    fn a_class_is_kept_where_this_process_sends_to_the_server_what_it_has_read() {
        for class in [AskedClass::Background, AskedClass::Priority, AskedClass::Auto] {
            let carriage = Carriage { service: Service { class, ..Service::default() }, ..Carriage::default() };
            let told = |connections| not_kept(&carriage, connections).len();
            assert_eq!(told(Connections::ToWrite), 0, "{class:?}");
            assert_eq!([Connections::ToRead, Connections::ToPassOn, Connections::BySsh].map(told), [1; 3], "{class:?}");
        }
    }
}
