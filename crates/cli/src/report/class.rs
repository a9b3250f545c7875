//! Words for service classes and marks.

use haul_job::{Arrival, ClassChange, MarkEffect, PathService};
use serde::{Deserialize, Serialize};

use crate::text::figures::{bits, bytes};

/// A path's service class and its mark's effect. Reports of earlier versions lack it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassLine {
    /// `background`, `normal` or `priority`: of most lanes, at the end.
    pub class: String,
    pub marked_bytes: u64,
    pub class_raises: u32,
    /// `unknown`, `helps`, `none`, `dropped` or `policed`.
    pub mark_effect: String,
    /// Marked packets that the path lets through, if it drops more; else 0.
    pub mark_policed_bytes_per_s: u64,
    /// A sent mark, and how it arrived; null: unseen.
    pub mark_sent: Option<u8>,
    pub mark_arrived: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ClassChangeLine {
    pub at_s: f64,
    pub class: String,
    pub reason: String,
}

pub fn of_class_change(change: &ClassChange, at_s: f64) -> ClassChangeLine {
    let ClassChange { class, reason, .. } = change;
    ClassChangeLine { at_s, class: class.clone(), reason: reason.clone() }
}

pub fn of_service(service: &PathService) -> ClassLine {
    let policed = match service.effect {
        MarkEffect::Policed { bytes_per_s } => bytes_per_s,
        _ => 0,
    };
    ClassLine {
        class: class_name(service.mark).to_owned(),
        marked_bytes: service.marked_bytes,
        class_raises: service.raises,
        mark_effect: effect_name(service.effect).to_owned(),
        mark_policed_bytes_per_s: policed,
        mark_sent: service.arrives.map(|arrival| arrival.sent),
        mark_arrived: service.arrives.map(|arrival| arrival.arrived),
    }
}

pub fn class_name(mark: u8) -> &'static str {
    match mark {
        46 => "priority",
        1 => "background",
        _ => "normal",
    }
}

/// A code point's name (RFC 4594, RFC 8622).
pub fn mark_name(mark: u8) -> String {
    match mark {
        0 => "best effort".to_owned(),
        1 => "LE".to_owned(),
        46 => "EF".to_owned(),
        n if n % 8 == 0 => format!("CS{}", n / 8),
        n => format!("DSCP {n}"),
    }
}

fn effect_name(effect: MarkEffect) -> &'static str {
    match effect {
        MarkEffect::Unknown => "unknown",
        MarkEffect::Helps => "helps",
        MarkEffect::None => "none",
        MarkEffect::Dropped => "dropped",
        MarkEffect::Policed { .. } => "policed",
    }
}

/// `marked EF here, arrives as best effort: cleared on the way`
pub fn arrival(arrival: Arrival) -> String {
    let (sent, arrived) = (mark_name(arrival.sent), mark_name(arrival.arrived));
    match arrival {
        Arrival { sent, arrived } if sent == arrived => format!("marked {} here, and arrives so", mark_name(sent)),
        Arrival { arrived: 0, .. } => format!("marked {sent} here, arrives as {arrived}: cleared on the way"),
        _ => format!("marked {sent} here, arrives as {arrived}: changed on the way"),
    }
}

pub fn rows(line: &ClassLine) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if line.marked_bytes > 0 || line.class_raises > 0 {
        let raised = match line.class_raises {
            0 => String::new(),
            1 => ", raised once".to_owned(),
            n => format!(", raised {n} times"),
        };
        rows.push(("class", format!("{} at the end, {} went marked{raised}", line.class, bytes(line.marked_bytes))));
    }
    match line.mark_effect.as_str() {
        "helps" => rows.push(("the mark", "helps: marked packets go before others".to_owned())),
        "none" => rows.push(("the mark", "does nothing on this path".to_owned())),
        "dropped" => rows.push(("the mark", "harms: marked packets do not arrive on this path".to_owned())),
        "policed" => {
            let rate = bits(line.mark_policed_bytes_per_s as f64);
            rows.push(("the mark", format!("the path lets {rate} of marked packets through, and drops the rest")));
        }
        _ => {}
    }
    if let (Some(sent), Some(arrived)) = (line.mark_sent, line.mark_arrived) {
        rows.push(("marks", arrival(Arrival { sent, arrived })));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_that_was_cleared_is_named_at_both_ends() {
        let told = |sent, arrived| arrival(Arrival { sent, arrived });
        assert_eq!(told(46, 0), "marked EF here, arrives as best effort: cleared on the way");
        assert_eq!(told(46, 8), "marked EF here, arrives as CS1: changed on the way");
        assert_eq!(told(1, 1), "marked LE here, and arrives so");
    }

    #[test]
    fn a_copy_that_asked_for_nothing_has_no_words_about_classes() {
        assert_eq!(rows(&of_service(&PathService::default())), []);
        let service = PathService { mark: 46, marked_bytes: 1 << 20, raises: 2, ..PathService::default() };
        let expected = "priority at the end, 1.00 MiB went marked, raised 2 times";
        assert_eq!(rows(&of_service(&service)), [("class", expected.to_owned())]);
    }
}
