//! What to do: decisions without I/O, clock or threads.
//!
//! ```text
//!   compare    an item and what stands at the target  -> keep, touch, send, refuse
//!   safe_link  where a link stands and leads           -> whether it stays in the tree
//!   plan       a file, a path                         -> chunks, lanes
//!   schedule   answers, lanes, deaths of lanes        -> the next unit for a lane
//!   integrity  data as it passes                      -> proof that a chunk is what the source read
//!   zeros      where a hole stands                    -> its hash, from a table
//!   front_to_back  a file as it is read, less holes   -> its BLAKE3
//!   ledger     proofs                                 -> what is missing; the file's BLAKE3
//!   journal    the ledger                             <-> bytes on disk
//!   arriving   proofs, time                           -> checkpoints step by step, a complete file
//!   at_risk    what is verified and not yet safe      -> when a checkpoint is due, when arriving waits
//!   flush_choice  small files that wait for their names -> one flush for all, or one for each
//!   window     items in manifest order                -> what may be settled now
//!   sending    answers, receipts, outcomes            -> units for lanes; what may be offered
//!   receiving  items, outcomes                        -> what data belongs to; whose turn has come
//!   tally      both streams of a session              -> totals, what to tell the user
//!   tune       a host, a rate, a round trip         -> what it should be set to, with the arithmetic
//!   attribute  where lane time went                   -> what limited the transfer
//!   path       samples of the lanes, again and again  -> advice: lanes, pacing, congestion control
//!   paths      samples of all paths                  -> which of them carry data, each with its advice
//!   service    what others need, what the job needs -> its class: background, normal, priority
//!   outage     silence of the other end             -> no data for so long; when each outage began
//!   thin_acks  words that are lost beside data        -> how long a receiver lets data gather
//!   rto_floor  timeouts that were observed              -> the floor that would have been best
//!   remedy     the limit, both hosts, the path        -> what would help
//! ```
//! Time and randomness are arguments. `no_std` makes the compiler keep that promise.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod arriving;
pub mod at_risk;
pub mod attribute;
pub mod compare;
pub mod flush_choice;
pub mod front_to_back;
mod hash;
pub mod integrity;
pub mod journal;
pub mod ledger;
pub mod outage;
pub mod pace;
pub mod path;
pub mod paths;
pub mod plan;
pub mod receiving;
pub mod remedy;
pub mod rto_floor;
pub mod safe_link;
pub mod schedule;
pub mod sending;
pub mod service;
pub mod spread;
pub mod tally;
pub mod thin_acks;
pub mod tune;
pub mod window;
pub mod zeros;
