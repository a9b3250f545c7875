//! Firewalls in a host's namespace, written for nft.

use crate::{Host, Run};

/// The fate of a forbidden connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// The other side waits in vain.
    Drop,
    /// The attempt is refused at once.
    Reject,
}

impl Host {
    /// Admits connections to these TCP ports alone.
    pub fn close_ports_but(&self, open: &[u16], manner: Manner) {
        let open = open.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        self.new_connections_rule("input", &format!("tcp dport != {{ {open} }}"), manner);
    }

    /// Lets this host connect to these TCP ports alone.
    pub fn close_way_out_but(&self, open: &[u16], manner: Manner) {
        let open = open.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        self.new_connections_rule("output", &format!("tcp dport != {{ {open} }}"), manner);
    }

    fn new_connections_rule(&self, hook: &str, which: &str, manner: Manner) {
        let verdict = match manner {
            Manner::Drop => "drop",
            Manner::Reject => "reject with tcp reset",
        };
        let interface = if hook == "input" { "iifname" } else { "oifname" };
        // Only a connection's first packet has SYN without ACK: no tracking needed.
        self.nft(&format!(
            "table inet lab_{hook} {{\nchain c {{\ntype filter hook {hook} priority 0;\n\
             meta {interface} \"lo\" accept\n{which} tcp flags & (syn | ack) == syn {verdict}\n}}\n}}\n"
        ));
    }

    /// Loads rules.
    #[track_caller]
    pub fn nft(&self, rules: &str) {
        Run::new("nft").args(["-f", "-"]).in_namespace(&self.namespace).input(rules).run().expect(0);
    }

    /// Removes all rules.
    #[track_caller]
    pub fn open_firewall(&self) {
        self.nft("flush ruleset\n");
    }
}
