//! The engines that can carry the packets of a lab.

use serde::{Deserialize, Serialize};

/// The engine that carries the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Our own emulator over TUN devices, on this machine's kernel, in real time
    #[default]
    Emulated,
    /// A User Mode Linux kernel whose clock stands still while programs compute: exact, says nothing about processor time
    Virtual,
    /// The same in real time, with the packaged kernel
    Uml,
}

impl Engine {
    /// The engine of this name; `None` for others, such as `loopback`.
    pub fn from_word(word: &str) -> Option<Engine> {
        [Engine::Emulated, Engine::Virtual, Engine::Uml].into_iter().find(|engine| engine.word() == word)
    }

    /// The name beside results.
    pub fn word(self) -> &'static str {
        match self {
            Engine::Emulated => "emulated",
            Engine::Virtual => "virtual",
            Engine::Uml => "uml",
        }
    }
}
