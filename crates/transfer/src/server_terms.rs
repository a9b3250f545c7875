//! Says what of a job's wishes for the network a server that is no haul cannot keep. The copy goes on.

use haul_job::{AskedClass, AskedPaths, Carriage, Transport};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialled {
    /// Our process: it chooses how they leave this host.
    Here,
    /// Our process, over all paths that are named.
    HereByTurns,
    BySsh,
}

pub(crate) fn not_kept(carriage: &Carriage, dialled: Dialled) -> Vec<String> {
    let mut told = Vec::new();
    match (carriage.service.class, dialled) {
        (AskedClass::Normal, _) => {}
        (AskedClass::Background, Dialled::Here | Dialled::HereByTurns) => told.push(
            "a server sends as fast as it likes: --background takes one connection, and marks only what this host sends"
                .to_owned(),
        ),
        (AskedClass::Background, Dialled::BySsh) => {
            told.push("ssh makes the connections: --background takes one of them, and marks nothing".to_owned());
        }
        (AskedClass::Priority | AskedClass::Auto, _) => {
            told.push("a network is asked for priority between two hauls only: nothing is asked for here".to_owned());
        }
    }
    if carriage.service.deadline.is_some() {
        told.push("the other end is no haul: --by is a wish for which nothing can be asked here".to_owned());
    }
    if dialled == Dialled::BySsh {
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
    } else if dialled == Dialled::Here && matches!(&carriage.paths, AskedPaths::List(list) if list.len() > 1) {
        told.push("a server is reached over one path: the first one of --paths".to_owned());
    }
    told
}

#[cfg(test)]
mod tests {
    use haul_job::Service;

    use super::*;

    #[test]
    fn what_a_server_cannot_keep_is_said_and_nothing_else() {
        let usual = Carriage::default();
        assert_eq!(not_kept(&usual, Dialled::Here).len() + not_kept(&usual, Dialled::BySsh).len(), 0);
        let service = Service { class: AskedClass::Background, ..Service::default() };
        let background = Carriage { service, congestion_control: Some("reno".into()), ..usual };
        let [told] = &not_kept(&background, Dialled::Here)[..] else { panic!("one sentence") };
        assert!(told.contains("one connection"), "{told}");
        let told = not_kept(&background, Dialled::BySsh).join("; ");
        assert!(told.contains("marks nothing") && told.contains("--cc without effect"), "{told}");
    }
}
