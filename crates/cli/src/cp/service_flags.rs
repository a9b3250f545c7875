//! Flags for what a copy asks of a network that others use, too.

use std::borrow::Cow;

use clap::{Args, ValueEnum};
use haul_job::rate;
use haul_job::{AskedClass, Service};
use jiff::Zoned;

use crate::cp::deadline_flags::{self, Deadline};
use crate::flags::headings::TRAVEL;

/// What is asked of the network.
#[derive(Clone, Debug, Args)]
pub struct ServiceFlags {
    /// How the data behaves beside the traffic of others. 'background' yields to everybody. 'normal' takes a fair share.
    /// 'priority' goes first, if the network and its operator allow that. 'auto' asks for priority while others take the
    /// path away
    #[arg(long, value_name = "NAME", help_heading = TRAVEL)]
    pub class: Option<ClassName>,
    /// Yield to everybody: the same as --class background
    #[arg(long, conflicts_with_all = ["class", "priority"], help_heading = TRAVEL)]
    pub background: bool,
    /// Ask for priority from the first byte on: the same as --class priority
    #[arg(long, conflicts_with = "class", help_heading = TRAVEL)]
    pub priority: bool,
    /// Ask for priority while others leave less than this rate, for as much of the data as this rate needs
    #[arg(long, value_name = "RATE", value_parser = rate::parse_rate, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["background", "priority"], help_heading = TRAVEL)]
    pub floor: Option<u64>,
    /// Be done by this time: '06:00' (the next one, on this host's clock) or '2026-12-01T08:00Z'. A copy that is ahead
    /// uses what nobody else wants. A copy that is far behind asks for priority
    #[arg(long, value_name = "TIME", value_parser = deadline_flags::parse_by, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["class", "background", "priority"], help_heading = TRAVEL)]
    pub by: Option<Deadline>,
    /// Be done within so long a time from the start, like 4h or 1h30m: as --by
    #[arg(long, value_name = "DURATION", value_parser = deadline_flags::parse_within, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["by", "class", "background", "priority"], help_heading = TRAVEL)]
    pub within: Option<Deadline>,
}

/// `--class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClassName {
    Background,
    Normal,
    Priority,
    Auto,
}

#[derive(Clone, Debug)]
pub struct Contradiction {
    pub what: Cow<'static, str>,
    pub hint: &'static str,
}

impl ServiceFlags {
    pub fn service(&self) -> Result<Service, Contradiction> {
        let deadline = self.by.or(self.within).map(|deadline| deadline.moment(&Zoned::now())).transpose();
        let deadline =
            deadline.map_err(|why| Contradiction { what: why.into(), hint: "name a time that is still to come" })?;
        let class = match self.class {
            _ if self.background => AskedClass::Background,
            _ if self.priority => AskedClass::Priority,
            None if self.floor.is_some() => AskedClass::Auto,
            None | Some(ClassName::Normal) => AskedClass::Normal,
            Some(ClassName::Background) => AskedClass::Background,
            Some(ClassName::Priority) => AskedClass::Priority,
            Some(ClassName::Auto) => AskedClass::Auto,
        };
        if self.floor.is_some() && class != AskedClass::Auto {
            return Err(Contradiction {
                what: "--floor asks for priority now and then, which only --class auto does".into(),
                hint: "leave --class out, or write --class auto",
            });
        }
        Ok(Service { class, floor_bytes_per_s: self.floor, deadline })
    }
}
