//! How much one connection may have under way: send and receive buffers, and all of them together.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::figures::{buffer_text, rate_text, size_text, under_way_text};
use super::finding::{Finding, Matters};
use super::host::{Host, Wanted};
use super::reach::{RECEIVED, SENT, Share, rate_of_window};

pub(super) fn findings(host: &Host, wanted: Wanted) -> Vec<Finding> {
    let growing = GROWING.iter().map(|buffer| grows_far_enough(host, wanted, buffer));
    let asked = ASKED.iter().map(|buffer| may_be_asked_for(host, wanted, buffer));
    growing.chain(asked).chain([held_by_all(host, wanted)]).collect()
}

/// A buffer that the kernel grows up to its setting's third value.
struct Growing {
    setting: &'static str,
    share: Share,
    overhead: &'static str,
    held: &'static str,
    factor: fn(&str) -> String,
}

const GROWING: [Growing; 2] = [
    Growing {
        setting: "net.ipv4.tcp_rmem",
        share: RECEIVED,
        overhead: "about half of a receive buffer is window, the rest the kernel counts for itself",
        held: "of window",
        factor: |bytes| format!("2 x {bytes}"),
    },
    Growing {
        setting: "net.ipv4.tcp_wmem",
        share: SENT,
        overhead: "about 0.7 of a send buffer is data under way",
        held: "under way",
        factor: |bytes| format!("{bytes} / 0.7"),
    },
];

fn grows_far_enough(host: &Host, wanted: Wanted, buffer: &Growing) -> Finding {
    let name = buffer.setting;
    let Some((setting, [least, first, most])) = host.settings.get(name).and_then(|s| Some((s, s.three()?))) else {
        return Finding::not_told(name, "How far the kernel lets a buffer grow by itself.");
    };
    let under_way = wanted.under_way_bytes();
    let needed = buffer.share.whole(under_way);
    let window = buffer.share.taken(most);
    let arithmetic = format!(
        "{}; {}: {} = {}.",
        under_way_text(wanted),
        buffer.overhead,
        (buffer.factor)(&size_text(under_way)),
        size_text(needed)
    );
    if most >= needed {
        return Finding::fine(name, &*setting.value, format!("{arithmetic} It may grow to {}.", buffer_text(most)));
    }
    let reached = rate_text(rate_of_window(window, wanted));
    let why = format!("{arithmetic} Now {} {} hold one connection to {reached}.", size_text(window), buffer.held);
    let room = room(needed, host);
    if room.bytes <= most {
        let why = format!("{why}{} Several lanes make up for it.", room.told());
        return Finding::by_hand(name, &*setting.value, None, Matters::Yes, why);
    }
    let mut why = format!("{why} Advised: up to {}.", buffer_text(room.bytes));
    if room.limit.is_some() {
        let reached = rate_text(rate_of_window(buffer.share.taken(room.bytes), wanted));
        why.push_str(&format!("{} One connection then reaches {reached}.", room.told()));
    }
    Finding::sysctl(name, setting, format!("{least} {first} {}", room.bytes), Matters::Yes, why)
}

/// A buffer that a program asks for: the kernel grants it, doubled, and does not grow it.
struct Asked {
    setting: &'static str,
    option: &'static str,
    share: Share,
    arithmetic: &'static str,
}

const ASKED: [Asked; 2] = [
    Asked {
        setting: "net.core.rmem_max",
        option: "SO_RCVBUF",
        share: RECEIVED,
        arithmetic: "and half of that is window",
    },
    Asked {
        setting: "net.core.wmem_max",
        option: "SO_SNDBUF",
        share: SENT,
        arithmetic: "and 0.7 of that is data under way",
    },
];

fn may_be_asked_for(host: &Host, wanted: Wanted, buffer: &Asked) -> Finding {
    let name = buffer.setting;
    let Some((setting, most)) = host.settings.get(name).and_then(|s| Some((s, s.value.parse::<u64>().ok()?))) else {
        return Finding::not_told(name, format!("Most that a program may ask for with {}.", buffer.option));
    };
    let needed = buffer.share.whole(wanted.under_way_bytes()).div_ceil(2);
    let arithmetic = format!(
        "Most that a program may ask for with {}, which ends the kernel's own growing. The kernel doubles it, {}: {} needed.",
        buffer.option,
        buffer.arithmetic,
        size_text(needed)
    );
    if most >= needed {
        return Finding::fine(name, &*setting.value, arithmetic);
    }
    let room = room(needed, host);
    let why = format!(
        "{arithmetic} Now {}: {} for one connection.{}",
        buffer_text(most),
        rate_text(rate_of_window(buffer.share.taken(most.saturating_mul(2)), wanted)),
        room.told()
    );
    if room.bytes <= most {
        return Finding::by_hand(name, &*setting.value, None, Matters::WouldHelp, why);
    }
    Finding::sysctl(name, setting, room.bytes.to_string(), Matters::WouldHelp, why)
}

/// Pages of all connections; from the second value the kernel shrinks windows.
fn held_by_all(host: &Host, wanted: Wanted) -> Finding {
    let name = "net.ipv4.tcp_mem";
    let Some((setting, now @ [_, pressure, _])) = host.settings.get(name).and_then(|s| Some((s, s.three()?))) else {
        return Finding::not_told(name, "Pages that all connections together may hold.");
    };
    let needed = RECEIVED.whole(wanted.under_way_bytes());
    let held = pressure.saturating_mul(host.page_bytes);
    let why = format!(
        "Above {} ({pressure} pages) the kernel shrinks the windows of all connections. {} are needed, whatever the number of lanes.",
        size_text(held),
        size_text(needed)
    );
    if held >= needed {
        return Finding::fine(name, &*setting.value, why);
    }
    match host.memory_bytes.and_then(|memory| usual_tcp_mem(memory, host.page_bytes)) {
        Some(usual) if usual[1] > pressure => {
            let why = format!("{why} Advised: a sixteenth of memory, as the kernel itself chooses at its start.");
            let advised = [0, 1, 2].map(|nth| usual[nth].max(now[nth]).to_string()).join(" ");
            Finding::sysctl(name, setting, advised, Matters::Yes, why)
        }
        Some(_) => {
            let why = format!(
                "{why} That is a sixteenth of memory already, or more: more memory would help, no setting does."
            );
            Finding::by_hand(name, &*setting.value, None, Matters::Yes, why)
        }
        None => Finding::by_hand(name, &*setting.value, None, Matters::Yes, why),
    }
}

/// 3/64, 4/64 and 6/64 of memory, as in the kernel (`tcp_init_mem`).
fn usual_tcp_mem(memory_bytes: u64, page_bytes: u64) -> Option<[u64; 3]> {
    let pages = memory_bytes.checked_div(page_bytes)? / MEMORY_SHARE;
    Some([pages / 4 * 3, pages, pages / 4 * 6])
}

struct Room {
    bytes: u64,
    limit: Option<String>,
}

impl Room {
    fn told(&self) -> String {
        self.limit.as_ref().map(|limit| format!(" The limit is {limit}.")).unwrap_or_default()
    }
}

/// A power of two, within memory's share and the kernel's range.
fn room(needed: u64, host: &Host) -> Room {
    let wished = needed.checked_next_power_of_two().unwrap_or(u64::MAX);
    let share = host.memory_bytes.map_or(u64::MAX, |memory| previous_power_of_two(memory / MEMORY_SHARE));
    let bytes = wished.min(share).min(BUFFER_MAX_BYTES);
    let limit = (bytes < needed).then(|| match bytes == share {
        true => format!(
            "memory: a sixteenth of {} is {} at most for one buffer",
            size_text(host.memory_bytes.unwrap_or_default()),
            buffer_text(bytes)
        ),
        false => format!("the kernel, which counts buffers in 31 bits: {}", buffer_text(bytes)),
    });
    Room { bytes, limit }
}

fn previous_power_of_two(bytes: u64) -> u64 {
    bytes.checked_ilog2().map_or(0, |power| 1 << power)
}

/// A sixteenth of memory over all connections makes the kernel itself save (`tcp_mem`).
const MEMORY_SHARE: u64 = 16;

/// Requests are doubled in signed 32 bits: 2^31 / 2.
const BUFFER_MAX_BYTES: u64 = 1 << 30;
